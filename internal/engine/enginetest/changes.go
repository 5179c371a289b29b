package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/guest"
)

// guestSource reads a sandbox's files through its guest.
type guestSource struct{ *testSandbox }

// Tree implements changeset.Source.
func (b guestSource) Tree(ctx context.Context, req changeset.TreeRequest) (io.ReadCloser, error) {
	return b.post(ctx, guest.PathTree, req)
}

// Pack implements changeset.Source.
func (b guestSource) Pack(ctx context.Context, req changeset.PackRequest) (io.ReadCloser, error) {
	return b.post(ctx, guest.PathPack, req)
}

// Redactor implements changeset.Source.
func (b guestSource) Redactor() changeset.Redactor { return nil }

// post sends a request to the guest and returns the body of its response.
func (b guestSource) post(ctx context.Context, path string, body any) (io.ReadCloser, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set(guest.ControlHeader, controlToken)
	res, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, res.Status)
	}
	return res.Body, nil
}

// changesRules check the guarantees on which a comparison of a sandbox's files relies.
var changesRules = []rule{
	// P37 of docs/reference/promises.md
	{"changes/exported-files-equal-those-in-the-sandbox", exportedChanges},
	{"changes/a-forged-time-does-not-hide-a-change", forgedTimes},
	// P36 of docs/reference/promises.md
	{"changes/a-racing-program-does-not-expose-other-files", racingProgram},
}

// workspaceSandbox is a sandbox with a workspace, and the base with which its files are compared.
type workspaceSandbox struct {
	guestSource
	dir  string
	base changeset.Base
	read int // how many files were read
}

// Tree counts the files that have to be read.
func (b *workspaceSandbox) Tree(ctx context.Context, req changeset.TreeRequest) (io.ReadCloser, error) {
	if req.Sums {
		b.read += len(req.Paths)
	}
	return b.guestSource.Tree(ctx, req)
}

// startWithWorkspace starts a sandbox with a workspace of these files.
func (c *Config) startWithWorkspace(t testing.TB, files map[string]string, hide ...string) *workspaceSandbox {
	t.Helper()
	dir := openTemp(t)
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	start, err := changeset.Walk(t.Context(), root, changeset.Bounds{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace, s.Hide = dir, hide })
	return &workspaceSandbox{guestSource: guestSource{b}, dir: dir, base: changeset.Base{Start: start, Outside: root}}
}

// compare returns the changes of the workspace.
func (b *workspaceSandbox) compare(t testing.TB) *changeset.Set {
	t.Helper()
	set, err := changeset.Compare(t.Context(), b, b.base, changeset.Options{Dir: "/workspace", Text: true})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// changeList returns the changes of a set as one line.
func changeList(set *changeset.Set) string {
	var all []string
	for _, c := range set.Changes {
		all = append(all, string(c.Op)+" "+c.Path)
	}
	return strings.Join(all, ", ")
}

// exportedChanges checks that the changes that a sandbox reports, applied to the host's workspace,
// give the same files.
func exportedChanges(t testing.TB, c *Config) {
	b := c.startWithWorkspace(t, map[string]string{"a.txt": "one\ntwo\n", "gone": "x", "dir/old": "x", "same": "same", ".env": "canary-31"}, "/workspace/.env")
	if set := b.compare(t); len(set.Changes) > 0 || b.read > 0 {
		t.Fatalf("a new sandbox has changed %s, and %d files were read", changeList(set), b.read)
	}
	b.want(t, `cd /workspace && echo three >> a.txt && rm -r gone dir && mkdir -p new/deep && echo '#!/bin/sh' > new/deep/run &&
		chmod 755 new/deep/run && ln -s ../a.txt new/link && echo done`, "done")
	// A change of the host's file is not visible in the sandbox.
	if err := os.WriteFile(filepath.Join(b.dir, "same"), []byte("of the host's"), 0o644); err != nil {
		t.Fatal(err)
	}
	set := b.compare(t)
	want := "changed a.txt, removed dir, removed dir/old, removed gone, created new, created new/deep, created new/deep/run, created new/link"
	if got := changeList(set); got != want {
		t.Fatalf("the changes are %s, want %s", got, want)
	}
	if set.Added != 3 || set.Removed != 2 || !strings.Contains(set.Changes[0].Text, "+three\n") {
		t.Errorf("the set has +%d -%d lines and the text %q, want +3 -2", set.Added, set.Removed, set.Changes[0].Text)
	}
	applied, err := changeset.Apply(t.Context(), b, b.base.Outside, set.Changes, changeset.ApplyOptions{Dir: "/workspace", Journals: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "a.txt"))
	if err != nil || string(text) != "one\ntwo\nthree\n" {
		t.Errorf("a.txt contains %q, %v", text, err)
	}
	info, err := os.Stat(filepath.Join(b.dir, "new/deep/run"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("run is %v, %v", info, err)
	}
	if _, err := os.Lstat(filepath.Join(b.dir, "dir")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the removed dir exists on the host: %v", err)
	}
	// Later changes are compared with the applied ones.
	b.base.Brought = applied
	if set := b.compare(t); len(set.Changes) > 0 {
		t.Errorf("still changed: %s", changeList(set))
	}
	b.want(t, "cd /workspace && echo four >> a.txt && echo done", "done")
	if set := b.compare(t); changeList(set) != "changed a.txt" || set.Added != 1 || set.Changes[0].Conflict != "" {
		t.Errorf("the changes after the second command are %s, %+v; want one line in a.txt without a conflict", changeList(set), set.Changes)
	}
}

// forgedTimes checks that a program cannot hide a change: it can give a file any size and
// modification time, but cannot choose the change time (ctime).
func forgedTimes(t testing.TB, c *Config) {
	b := c.startWithWorkspace(t, map[string]string{"forged": "content before!", "touched": "x", "back": "x", "mode": "x", "calm": "x"})
	b.want(t, `cd /workspace && printf 'CONTENT of now!' > .new && touch -r forged .new && mv .new forged && touch -d @1000000000 touched &&
		mv back b2 && mv b2 back && chmod 700 mode && chmod 644 mode && echo done`, "done")
	info, err := os.Stat(filepath.Join(b.dir, "forged"))
	if err != nil {
		t.Fatal(err)
	}
	// The control: size and modification time alone do not reveal the change.
	if r := b.sh(t, "stat -c %s,%Y /workspace/forged"); strings.TrimSpace(r.stdout) != fmt.Sprintf("%d,%d", info.Size(), info.ModTime().Unix()) {
		t.Fatalf("the forgery did not work: %q", r.stdout)
	}
	// Root of the sandbox cannot set the clock back to that time either.
	if r := b.shAs(t, "root", "date -s @"+fmt.Sprint(info.ModTime().Unix())); r.code == 0 {
		t.Error("root sets the clock")
	}
	if set := b.compare(t); changeList(set) != "changed forged" {
		t.Errorf("the changes are %s, want only that of forged", changeList(set))
	}
	if b.read != 4 {
		t.Errorf("%d files were read, want the 4 that were touched", b.read)
	}
}

// racingScript replaces a directory of the workspace by a link to another directory, and back.
const racingScript = `
import os, time
end = time.time() + 4
print("racing", flush=True)
while time.time() < end:
    os.rename("d", "kept"); os.symlink("/tmp/elsewhere", "d"); os.unlink("d"); os.rename("kept", "d")
`

// racingProgram checks that a program cannot expose files outside the workspace by replacing a
// directory by a link while the workspace is compared.
func racingProgram(t testing.TB, c *Config) {
	b := c.startWithWorkspace(t, map[string]string{"d/file": "content of the workspace"})
	b.want(t, "mkdir /tmp/elsewhere && echo canary-elsewhere > /tmp/elsewhere/file && cd /workspace && cp -r d e && rm -r d && mv e d && echo new > d/file && echo done", "done")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if r, err := b.exec(t.Context(), "user", "/bin/sh", "-c", "cd /workspace && python3 -c '"+racingScript+"'"); err != nil || r.code != 0 {
			t.Errorf("the race: %+v, %v", r, err)
		}
	}()
	seen, replacements := 0, 0
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		set, err := changeset.Compare(t.Context(), b, b.base, changeset.Options{Dir: "/workspace", Text: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range set.Changes {
			switch {
			case strings.Contains(c.Text, "canary-elsewhere"):
				t.Fatalf("%s has the content of a file elsewhere: %s", c.Path, c.Text)
			case strings.HasSuffix(c.Path, "/file") && c.New != nil:
				seen++
			case c.Path == "kept" || c.Path == "d":
				replacements++
			}
		}
	}
	if seen == 0 || replacements == 0 {
		t.Errorf("the race never happened: the file was seen %d times, and its directory replaced %d times", seen, replacements)
	}
}

// openTemp returns a new directory on the host that every user may read.
func openTemp(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
