package changeset_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/guest/tree"
)

// localSource is a sandbox whose guest runs in this process, on a directory.
type localSource struct {
	dir string
	// packing is called before files are packed.
	packing func()
	// sumRequests counts files whose checksums were requested.
	sumRequests int
	// shown maps files of the directory at the start to the files of the host that they stand for.
	// As with an overlay, the sandbox shows the latter until it changes them.
	shown map[string][2]changeset.Entry
	// hide redacts secrets.
	hide changeset.RedactorOf
}

func (l *localSource) Redactor() changeset.Redactor {
	if l.hide == nil {
		return nil
	}
	return l.hide()
}

// overlay makes the sandbox show the host's files where it has changed nothing.
func (l *localSource) overlay(t testing.TB, host []changeset.Entry) {
	t.Helper()
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	inside, err := changeset.Walk(t.Context(), root, changeset.Bounds{}, nil)
	if err != nil || len(inside) != len(host) {
		t.Fatalf("overlay: got %d files inside and %d outside, error %v", len(inside), len(host), err)
	}
	l.shown = map[string][2]changeset.Entry{}
	for i, e := range inside {
		l.shown[e.Path] = [2]changeset.Entry{e, host[i]}
	}
}

func (l *localSource) Tree(ctx context.Context, req changeset.TreeRequest) (io.ReadCloser, error) {
	if req.Sums {
		l.sumRequests += len(req.Paths)
	}
	req.Dir = l.dir
	return pipeFrom(func(w io.Writer) error {
		all, err := changeset.ReadTree(pipeFrom(func(w io.Writer) error { return tree.List(ctx, w, req) }), changeset.Bounds{})
		if err != nil {
			return err
		}
		out := changeset.NewEncoder(w)
		for _, e := range all {
			s, known := l.shown[e.Path]
			if listed := s[0]; known && listed.Type == e.Type && listed.Size == e.Size && listed.Mode == e.Mode && listed.MTime.Equal(e.MTime) && listed.CTime.Equal(e.CTime) {
				e.MTime, e.CTime = s[1].MTime, s[1].CTime
			}
			if err := out.Put(e); err != nil {
				return err
			}
		}
		return out.Close()
	}), nil
}

func (l *localSource) Pack(ctx context.Context, req changeset.PackRequest) (io.ReadCloser, error) {
	if l.packing != nil {
		l.packing()
	}
	req.Dir = l.dir
	return pipeFrom(func(w io.Writer) error { return tree.Pack(ctx, w, req) }), nil
}

// pipeFrom returns a reader of what a function writes.
func pipeFrom(write func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(w)) }()
	return r
}

// writeTree creates files. A name that ends in a slash is a directory, text that begins with "-> "
// a link, and "!x" an executable file.
func writeTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		text, full := files[name], filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		target, link := strings.CutPrefix(text, "-> ")
		script, executable := strings.CutPrefix(text, "!")
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(full, 0o755)
		case link:
			err = os.Symlink(target, full)
		case executable:
			if err = os.WriteFile(full, []byte(script), 0o755); err == nil {
				err = os.Chmod(full, 0o755)
			}
		default:
			err = os.WriteFile(full, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// describeTree returns a description of a tree: types, modes, contents and targets, and
// modification times if requested.
func describeTree(t testing.TB, dir string, times bool) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if times {
			text += " " + info.ModTime().String()
		}
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text += " " + target
		}
		if rel != "." || times {
			all[rel] = text
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// diffTrees returns the differences of two descriptions of trees, or "".
func diffTrees(x, y map[string]string) string {
	var b strings.Builder
	for name, text := range x {
		if y[name] != text {
			fmt.Fprintf(&b, "%q: %q and %q\n", name, text, y[name])
		}
	}
	for name, text := range y {
		if _, ok := x[name]; !ok {
			fmt.Fprintf(&b, "%q: nothing and %q\n", name, text)
		}
	}
	return b.String()
}

// treeTest is a host directory and a sandbox that started with it.
type treeTest struct {
	host, inside, journals string
	root                   *os.Root
	source                 *localSource
	base                   changeset.Base
}

// stage fetches the changes into a directory of its own.
func (b *treeTest) stage(t testing.TB, set *changeset.Set) *os.Root {
	t.Helper()
	staged, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { staged.Close() })
	stagedChanges, err := changeset.Stage(t.Context(), b.source, "/workspace", set.Changes, staged, changeset.Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	set.Changes = stagedChanges
	return staged
}

// newTreeTest copies the host's directory into the sandbox.
func newTreeTest(t testing.TB, files map[string]string) *treeTest {
	t.Helper()
	dir := t.TempDir()
	b := &treeTest{host: filepath.Join(dir, "host"), inside: filepath.Join(dir, "inside"), journals: filepath.Join(dir, "journals")}
	if err := os.MkdirAll(b.host, 0o755); err != nil {
		t.Fatal(err)
	}
	writeTree(t, b.host, files)
	b.start(t)
	return b
}

// start copies the host's directory into the sandbox, and lists it.
func (b *treeTest) start(t testing.TB) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", b.host, b.inside).CombinedOutput(); err != nil {
		t.Fatalf("cp: error %v, got %s", err, out)
	}
	root, err := os.OpenRoot(b.host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	entries, err := changeset.Walk(t.Context(), root, changeset.Bounds{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.root, b.base, b.source = root, changeset.Base{Start: entries, Outside: root}, &localSource{dir: b.inside}
	b.source.overlay(t, entries)
}

func (b *treeTest) compare(t testing.TB) *changeset.Set {
	t.Helper()
	set, err := changeset.Compare(t.Context(), b.source, b.base, changeset.Options{Dir: "/workspace", Text: true, Lines: true})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func (b *treeTest) apply(t testing.TB, list []changeset.Change, overwrite bool) ([]changeset.Entry, error) {
	t.Helper()
	return changeset.Apply(t.Context(), b.source, b.root, list, changeset.ApplyOptions{Dir: "/workspace", Journals: b.journals, Overwrite: overwrite})
}

// checkClean checks that an Apply has removed its stage and journal.
func (b *treeTest) checkClean(t testing.TB) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(b.host, ".crannog-*"), filepath.Join(b.journals, "*")} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("Apply has left the files %q, error %v", left, err)
		}
	}
}

// summaries describes each change in one line.
func summaries(set *changeset.Set) []string {
	var all []string
	for _, c := range set.Changes {
		var s strings.Builder
		fmt.Fprintf(&s, "%s %s", c.Op, c.Path)
		if c.Conflict != "" {
			s.WriteString(" " + string(c.Conflict))
		}
		for _, f := range c.Flags {
			s.WriteString(" " + string(f))
		}
		all = append(all, s.String())
	}
	return all
}

// diskUsage returns how much disk space a file takes.
func diskUsage(t testing.TB, name string) int64 {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Lstat(name, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}
