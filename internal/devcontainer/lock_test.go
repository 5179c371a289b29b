package devcontainer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

const digestA, digestB = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// lockedIn makes the plan of a configuration with a lock file.
func lockedIn(t *testing.T, config, lock string) (Options, Plan, error) {
	t.Helper()
	o := Options{Dir: workspace(t, config), LookUp: none}
	if lock != "" {
		if err := os.WriteFile(filepath.Join(o.Dir, ".devcontainer-lock.json"), []byte(lock), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan, err := Make(o)
	return o, plan, err
}

func TestLockFilePinsFeatures(t *testing.T) {
	registry := published{
		"r/a@" + digestA: `{"id": "a", "version": "1.2.3", "dependsOn": {"r/b:1": {}}}`,
		"r/b:1":          `{"id": "b", "version": "1.0.0"}`,
	}
	find := func(reference string) Artifact {
		digest := digestB
		if _, pinned, ok := strings.Cut(reference, "@"); ok {
			digest = pinned
		}
		return Artifact{Digest: digest, Description: []byte(registry[reference])}
	}
	o, plan, err := lockedIn(t, `{"image": "x", "features": {"r/a:1": {}}}`, `{"features": {"r/a:1": {"version": "1.2.3", "resolved": "r/a@`+digestA+`", "integrity": "`+digestA+`"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.ResolveFeatures(t.Context(), o, func(_ context.Context, ref string) (Artifact, error) { return find(ref), nil }); err != nil {
		t.Fatal(err)
	}
	if len(plan.Installs) != 2 || plan.Installs[0].Source != "r/b:1" || plan.Installs[1].Source != "r/a@"+digestA {
		t.Errorf("installs: got %+v, want r/b by its tag and r/a by its digest", plan.Installs)
	}
	if len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "r/b:1 is not in .devcontainer-lock.json") {
		t.Errorf("notes: got %q, want one about r/b:1", plan.Notes)
	}
	file, err := plan.ImageFile("x", "")
	if err != nil || !strings.Contains(file, "from=r/a@"+digestA) {
		t.Errorf("ImageFile: got %s, error %v", file, err)
	}
	// The file that is written is one that pins everything.
	name, err := plan.WriteLock(o.Dir)
	if err != nil || name != ".devcontainer-lock.json" {
		t.Fatalf("WriteLock: got %q, error %v", name, err)
	}
	again, err := Make(o)
	if err != nil || again.Locked["r/a:1"] != "r/a@"+digestA || again.Locked["r/b:1"] != "r/b@"+digestB || len(again.Locked) != 2 {
		t.Errorf("the plan with the new file: got %v, error %v", again.Locked, err)
	}
	// A registry that answers with another feature is noticed.
	other := func(_ context.Context, ref string) (Artifact, error) {
		return Artifact{Digest: digestB, Description: []byte(registry["r/b:1"])}, nil
	}
	if err := again.ResolveFeatures(t.Context(), o, other); fault.CodeOf(err) != CodeInvalid || !strings.Contains(err.Error(), "has another one") {
		t.Errorf("another digest: got %v, want %s", err, CodeInvalid)
	}
}

// The lock file comes with the repository: it leads to no other feature than the configuration names.
func TestLockFileIsRefused(t *testing.T) {
	entry := func(resolved, integrity string) string {
		return `{"features": {"r/a:1": {"resolved": "` + resolved + `", "integrity": "` + integrity + `"}}}`
	}
	for title, lock := range map[string]string{
		"no JSON":                 "{",
		"another feature":         entry("r/b@"+digestA, digestA),
		"another registry":        entry("q/a@"+digestA, digestA),
		"a tag":                   entry("r/a:1", digestA),
		"no digest":               entry("r/a", ""),
		"another kind of digest":  entry("r/a@md5:aa", "md5:aa"),
		"two digests":             entry("r/a@"+digestA, digestB),
		"words of a Dockerfile":   entry("r/a@"+digestA+",target=/x", digestA+",target=/x"),
		"an entry without fields": `{"features": {"r/a:1": {}}}`,
	} {
		if _, _, err := lockedIn(t, `{"image": "x", "features": {"r/a:1": {}}}`, lock); fault.CodeOf(err) != CodeInvalid {
			t.Errorf("%s: got %v, want %s", title, err, CodeInvalid)
		}
	}
	if _, plan, err := lockedIn(t, `{"image": "x"}`, ""); err != nil || plan.Locked != nil {
		t.Errorf("no lock file: got %v, error %v", plan.Locked, err)
	}
	if got := LockName(".devcontainer/devcontainer.json"); got != ".devcontainer/devcontainer-lock.json" {
		t.Errorf("LockName: got %s", got)
	}
}

// A lock file that is no file is refused. Opening the pipe would never end.
func TestLockFileIsRegular(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(outside, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for title, place := range map[string]func(name string) error{
		"a named pipe":                     func(name string) error { return unix.Mkfifo(name, 0o600) },
		"a directory":                      func(name string) error { return os.Mkdir(name, 0o700) },
		"a link that leads out of the dir": func(name string) error { return os.Symlink(outside, name) },
	} {
		o := Options{Dir: workspace(t, `{"image": "x"}`), LookUp: none}
		if err := place(filepath.Join(o.Dir, ".devcontainer-lock.json")); err != nil {
			t.Fatal(err)
		}
		if _, err := Make(o); fault.CodeOf(err) != CodeInvalid {
			t.Errorf("%s: got %v, want %s", title, err, CodeInvalid)
		}
	}
}

// A link at the place of the lock file is replaced, and not followed out of the workspace.
func TestWriteLockFollowsNoLink(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, plan, err := lockedIn(t, `{"image": "x"}`, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".devcontainer-lock.json", ".devcontainer-lock.json.new"} {
		if err := os.Symlink(outside, filepath.Join(o.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := plan.WriteLock(o.Dir); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "mine" {
		t.Errorf("the file outside: got %q, error %v", data, err)
	}
	if info, err := os.Lstat(filepath.Join(o.Dir, ".devcontainer-lock.json")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the lock file: got %v, error %v", info, err)
	}
}
