package objects_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/gitrepo/objects"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

type repo struct {
	t   testing.TB
	dir string
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	return strings.TrimSpace(hosttest.RunGit(r.t, r.dir, args...))
}

func (r repo) write(name, text string) {
	r.t.Helper()
	name = filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r repo) commit(name, text string) string {
	r.t.Helper()
	r.write(name, text)
	r.git("add", "-A")
	r.git("commit", "-qm", name)
	return r.git("rev-parse", "HEAD")
}

func (r repo) open() *objects.Reader {
	r.t.Helper()
	root, err := os.OpenRoot(filepath.Join(r.dir, ".git", "objects"))
	if err != nil {
		r.t.Fatal(err)
	}
	reader, err := objects.NewReader(objects.Root{Root: root})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { reader.Close(); root.Close() })
	return reader
}

func newRepo(t testing.TB, format string) repo {
	t.Helper()
	hosttest.Need(t, hosttest.Git)
	r := repo{t, t.TempDir()}
	r.git("init", "-q", "-b", "main", "--object-format="+format)
	return r
}

// Read returns the same objects as git, loose and packed, with chains of deltas.
func TestReadAgreesWithGit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		r := newRepo(t, format)
		long := strings.Repeat("a line that is the same each time\n", 200)
		for i := range 30 {
			r.commit(fmt.Sprintf("d%d/f", i%4), fmt.Sprintf("%s%d\n%s", long, i, long))
		}
		check := func() {
			t.Helper()
			reader := r.open()
			for id := range strings.FieldsSeq(r.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")) {
				kind, data, err := reader.Read(id)
				if err != nil || kind != r.git("cat-file", "-t", id) || fmt.Sprint(len(data)) != r.git("cat-file", "-s", id) {
					t.Fatalf("Read(%s): got a %s of %d bytes, error %v", id, kind, len(data), err)
				}
			}
			if _, _, err := reader.Read(strings.Repeat("0", len(r.git("rev-parse", "HEAD")))); !errors.Is(err, objects.ErrMissing) {
				t.Errorf("Read of a missing object: got %v, want ErrMissing", err)
			}
		}
		check()
		r.git("-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq", "--depth=50")
		check()
		r.git("repack", "-adfq", "--depth=50")
		check()
	}
}

// changed returns the paths that differ between two trees.
func changed(t *testing.T, r *objects.Reader, from, to string) []string {
	t.Helper()
	all := map[string]string{}
	if err := r.Changed(from, to, func(path, now string) error { all[path] = now; return nil }); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(all))
}

// F1: the changes of commits since the known ones are found, whatever was merged.
func TestF1HistoryFindsBases(t *testing.T) {
	r := newRepo(t, "sha1")
	root := r.commit("a", "1")
	r.commit(".env", "s")
	host := r.commit("dir/b", "1")
	r.git("switch", "-qc", "work")
	r.commit("c", "1")
	r.git("rm", "-q", ".env")
	r.git("commit", "-qm", "gone")
	r.git("rm", "-q", "dir/b")
	gone := r.commit("dir/b/now/dir", "x")
	reader := r.open()
	tree, bases, err := since(reader, gone, []string{host})
	if err != nil || len(bases) != 1 || bases[0] != r.git("rev-parse", host+"^{tree}") {
		t.Fatalf("since: got %s, %v, error %v", tree, bases, err)
	}
	if got := changed(t, reader, bases[0], tree); !slices.Equal(got, []string{".env", "c", "dir/b", "dir/b/now/dir"}) {
		t.Errorf("changed: got %v", got)
	}
	// A known commit is its own base, even if others reach it.
	for _, known := range [][]string{{host}, {gone}, {gone, host}} {
		if tree, bases, err := since(reader, root, known); err != nil || len(bases) != 1 || bases[0] != tree {
			t.Errorf("since(%v): got %v, error %v", known, bases, err)
		}
	}
	// An unrelated history has no base.
	r.git("switch", "-q", "--orphan", "new")
	alone := r.commit("x", "1")
	r.git("merge", "-q", "--allow-unrelated-histories", "-m", "both", "main")
	both := r.git("rev-parse", "HEAD")
	r.git("tag", "-a", "-m", "t", "tagged")
	reader = r.open()
	if _, bases, err := since(reader, alone, []string{host}); err != nil || len(bases) != 0 {
		t.Errorf("since: got %v, error %v", bases, err)
	}
	for _, id := range []string{both, r.git("rev-parse", "tagged")} {
		tree, bases, err := since(reader, id, []string{host, root, strings.Repeat("1", 40)})
		if err != nil || len(bases) != 1 || !slices.Equal(changed(t, reader, bases[0], tree), []string{"x"}) {
			t.Errorf("since: got %v, error %v", bases, err)
		}
	}
	if tree, _, err := since(reader, r.git("rev-parse", "HEAD^{tree}"), []string{host}); err != nil || tree != "" {
		t.Errorf("since for a tree: got %q, error %v", tree, err)
	}
}

// F1: all new commits are found exactly once, by any path, each with its bases.
func TestF1HistoryFindsNewCommits(t *testing.T) {
	r := newRepo(t, "sha1")
	host := r.commit("a", "1")
	r.git("switch", "-qc", "upstream")
	upstream := r.commit("u", "1")
	r.git("switch", "-qc", "work", "main")
	first := r.commit("b", "1")
	r.git("rm", "-q", "b")
	r.git("commit", "-qm", "gone")
	gone := r.git("rev-parse", "HEAD")
	r.git("merge", "-q", "--no-edit", "upstream")
	merge := r.git("rev-parse", "HEAD")
	r.git("tag", "-a", "-m", "t", "tagged")
	h, err := objects.NewHistory(r.open(), []string{host, upstream})
	if err != nil {
		t.Fatal(err)
	}
	for tip, want := range map[string][]string{
		merge: {first, gone, merge}, r.git("rev-parse", "tagged"): {first, gone, merge}, gone: {first, gone}, host: nil,
	} {
		c, err := h.Find(tip)
		if err != nil {
			t.Fatal(err)
		}
		made, err := h.New(c)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range made {
			got = append(got, c.ID)
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("New(%s): got %v, want %v", tip, got, want)
		}
	}
	c, err := h.Find(merge)
	if err != nil {
		t.Fatal(err)
	}
	bases, err := h.Bases(c)
	if want := []string{r.git("rev-parse", host+"^{tree}"), r.git("rev-parse", upstream+"^{tree}")}; err != nil || !slices.Equal(bases, slices.Sorted(slices.Values(want))) {
		t.Errorf("Bases: got %v, error %v", bases, err)
	}
	if parents := h.Parents(c); len(parents) != 2 {
		t.Errorf("Parents: got %v", parents)
	}
}

// since returns the tree of a commit, and the trees of its bases.
func since(r *objects.Reader, tip string, known []string) (tree string, bases []string, err error) {
	h, err := objects.NewHistory(r, known)
	if err != nil {
		return "", nil, err
	}
	c, err := h.Find(tip)
	if err != nil || c == nil {
		return "", nil, err
	}
	bases, err = h.Bases(c)
	return c.Tree, bases, err
}

// F1: wrong clocks do not make a commit look as if it had no base.
func TestF1HistoryWithWrongClocks(t *testing.T) {
	r := newRepo(t, "sha1")
	r.commit("a", "1")
	late := r.commit(".env", "s")
	t.Setenv("GIT_COMMITTER_DATE", "2001-01-01T00:00:00Z")
	host := r.commit("b", "1")
	t.Setenv("GIT_COMMITTER_DATE", "")
	os.Unsetenv("GIT_COMMITTER_DATE")
	r.git("switch", "-qc", "work", late)
	r.git("rm", "-q", ".env")
	r.git("commit", "-qm", "gone")
	reader := r.open()
	tree, bases, err := since(reader, r.git("rev-parse", "HEAD"), []string{host})
	if err != nil || len(bases) != 1 || !slices.Equal(changed(t, reader, bases[0], tree), []string{".env"}) {
		t.Errorf("since: got %v, error %v", bases, err)
	}
}

// Data of a sandbox is either an error or matches its name, and its size is limited.
func TestReadRejectsHostileObjects(t *testing.T) {
	r := newRepo(t, "sha1")
	id := r.commit("a", "1")
	name := filepath.Join(r.dir, ".git/objects", id[:2], id[2:])
	other := r.commit("a", "2")
	data, err := os.ReadFile(filepath.Join(r.dir, ".git/objects", other[:2], other[2:]))
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string][]byte{"another": data, "cut": data[:len(data)/2], "empty": nil, "no zlib": []byte("commit 1\x00x")} {
		if err := errors.Join(os.Chmod(name, 0o600), os.WriteFile(name, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.open().Read(id); err == nil {
			t.Errorf("%s: Read returns no error", what)
		}
	}
}

func FuzzPack(f *testing.F) {
	r := newRepo(f, "sha1")
	long := strings.Repeat("a line\n", 100)
	for i := range 5 {
		r.commit("f", fmt.Sprintf("%s%d", long, i))
	}
	r.git("repack", "-adfq")
	packs, err := filepath.Glob(filepath.Join(r.dir, ".git/objects/pack/*"))
	if err != nil {
		f.Fatal(err)
	}
	files := map[string][]byte{}
	for _, p := range packs {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		files[filepath.Ext(p)] = data
	}
	ids := strings.Fields(r.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))
	f.Add(files[".idx"], files[".pack"])
	f.Fuzz(func(t *testing.T, idx, pack []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"pack/pack-1.idx": idx, "pack/pack-1.pack": pack} {
			repo{t, dir}.write(name, string(data))
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		reader, err := objects.NewReader(objects.Root{Root: root})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		for _, id := range ids {
			if _, _, err := reader.Read(id); err != nil {
				continue
			}
			_, _, _ = since(reader, id, nil) // must return
		}
	})
}
