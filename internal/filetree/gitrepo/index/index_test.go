package index_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/gitrepo/index"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

type repo struct {
	t   testing.TB
	dir string
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	return hosttest.RunGit(r.t, r.dir, args...)
}

func (r repo) read() *index.Index {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, ".git", "index"))
	if err != nil {
		r.t.Fatal(err)
	}
	x, err := index.Parse(data)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func (r repo) write(x *index.Index) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, ".git", "index"), x.Bytes(), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func newRepo(t testing.TB, config ...string) repo {
	t.Helper()
	hosttest.Need(t, hosttest.Git)
	r := repo{t, t.TempDir()}
	args := []string{"init", "-q", "-b", "main"}
	if len(config) > 0 && config[0] == "sha256" {
		args, config = append(args, "--object-format=sha256"), config[1:]
	}
	r.git(args...)
	for _, c := range config {
		k, v, _ := strings.Cut(c, "=")
		r.git("config", k, v)
	}
	for i := range 40 {
		name := filepath.Join(r.dir, fmt.Sprintf("dir%d/%s-%d", i%3, strings.Repeat("n", i), i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, ".env"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.git("add", ".")
	r.git("commit", "-qm", "first")
	return r
}

var kinds = map[string][]string{
	"v2": {"index.version=2"}, "v4": {"index.version=4"}, "sha256": {"sha256", "index.version=2"},
	"untracked cache": {"core.untrackedCache=true"}, "no checksum": {"index.skipHash=true"}, "threads": {"index.threads=true"},
}

func hidden(name string) bool { return name == ".env" || strings.HasPrefix(name, "dir1/") }

// F1: git does not report absent, marked files as removed, and the rest of the index is unchanged.
func TestF1MarkedFilesAreNotRemoved(t *testing.T) {
	for kind, config := range kinds {
		t.Run(kind, func(t *testing.T) {
			r := newRepo(t, config...)
			before := r.git("ls-files", "--stage", "--debug")
			x := r.read()
			if again := x.Bytes(); x.Skip(func(string) bool { return false }) != 0 || !bytes.Equal(again, x.Bytes()) {
				t.Error("Bytes returns different data in a second call")
			}
			for _, name := range []string{".env", "dir1"} {
				if err := os.RemoveAll(filepath.Join(r.dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			if r.git("status", "--porcelain") == "" {
				t.Fatal("control: git does not report the removed files")
			}
			x = r.read()
			if n := x.Skip(hidden); n != 14 {
				t.Errorf("Skip: got %d marked files, want 14", n)
			}
			r.write(x)
			if got := r.git("status", "--porcelain"); got != "" {
				t.Errorf("git says %s", got)
			}
			r.git("commit", "-q", "--allow-empty", "-am", "second")
			if got := r.git("diff", "--stat", "HEAD~", "HEAD"); got != "" {
				t.Errorf("the commit changes %s", got)
			}
			r.git("fsck", "--strict")
			host, inside := r.read(), r.read()
			host.Restore(parse(t, before, r), hidden)
			if inside.Same(host) {
				t.Error("Same ignores a mark")
			}
		})
	}
}

// parse returns the index without marks.
func parse(t *testing.T, before string, r repo) *index.Index {
	t.Helper()
	r.git("update-index", "--no-skip-worktree", ".env")
	for i := 1; i < 40; i += 3 {
		r.git("update-index", "--no-skip-worktree", fmt.Sprintf("dir1/%s-%d", strings.Repeat("n", i), i))
	}
	if after := r.git("ls-files", "--stage"); !strings.HasPrefix(before, after[:10]) {
		t.Errorf("another index: %s", after)
	}
	return r.read()
}

// F1: Restore gives an exported index the host's entries of hidden files.
func TestF1RestoresHiddenEntries(t *testing.T) {
	for kind, config := range kinds {
		t.Run(kind, func(t *testing.T) {
			r := newRepo(t, config...)
			host := r.read()
			x := r.read()
			x.Skip(hidden)
			r.write(x)
			r.git("rm", "-q", "--sparse", "--cached", ".env", "dir1/n-1")
			if err := os.WriteFile(filepath.Join(r.dir, "new"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			r.git("add", "new")
			x = r.read()
			if !x.Restore(host, hidden) {
				t.Error("Restore has restored no entries")
			}
			r.write(x)
			if got := r.git("status", "--porcelain"); got != "A  new\n" {
				t.Errorf("git says %s", got)
			}
			if x.Restore(host, hidden) {
				t.Error("a second Restore has restored entries")
			}
			if r.git("commit", "-qm", "second"); r.git("ls-tree", "HEAD", ".env") == "" {
				t.Error("the hidden file is lost")
			}
		})
	}
}

// F1: files that two indexes track differently are found.
func TestF1OtherFindsDifferences(t *testing.T) {
	r := newRepo(t)
	host := r.read()
	if err := os.WriteFile(filepath.Join(r.dir, "dir1", "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.git("add", ".")
	added := r.read()
	r.git("rm", "-q", "-f", ".env", "dir1/n-1")
	for what, c := range map[string]struct{ mine, want string }{"added": {"dir1/", "dir1/new"}, "elsewhere": {"dir2/", ""}} {
		of := func(name string) bool { return strings.HasPrefix(name, c.mine) }
		if got, back := added.Other(host, of), host.Other(added, of); got != c.want || back != c.want {
			t.Errorf("%s: Other: got %q, %q", what, got, back)
		}
	}
	if got := r.read().Other(host, hidden); got != ".env" {
		t.Errorf("Other with removed files: got %q, want .env", got)
	}
}

func TestParseRejectsSplitIndex(t *testing.T) {
	r := newRepo(t, "core.splitIndex=true")
	r.git("update-index", "--split-index")
	data, err := os.ReadFile(filepath.Join(r.dir, ".git", "index"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := index.Parse(data); err != index.ErrSplit { //nolint:errorlint // it is returned as it is
		t.Errorf("Parse: error %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, config := range kinds {
		r := newRepo(f, config...)
		data, err := os.ReadFile(filepath.Join(r.dir, ".git", "index"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := index.Parse(data)
		if err != nil {
			return
		}
		x.Skip(func(name string) bool { return len(name)%2 == 0 })
		y, err := index.Parse(x.Bytes())
		if err != nil || !x.Same(y) {
			t.Errorf("Parse of the written index: error %v, or a different index", err)
		}
	})
}
