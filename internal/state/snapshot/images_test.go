package snapshot

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

func TestPagesAreSameInAllForms(t *testing.T) {
	s := newImages(t)
	base := noise(1, 300)
	child := slices.Clone(base)
	copy(child[10*pageBytes:], noise(2, 20))
	clear(child[100*pageBytes : 150*pageBytes])
	a, b := commit(t, s, "a", "", base), commit(t, s, "b", "a", child)
	if a.Bytes != int64(len(base)+len("state of a")+len("meta of a")) || b.Parent != "a" || len(a.Sum) != 64 || a.Sum == b.Sum {
		t.Fatalf("Commit: got images %+v and %+v", a, b)
	}
	check := func(form string) {
		t.Helper()
		for range 2 {
			wantPages(t, s, a, base)
			wantPages(t, s, b, child)
		}
		// A process that has not read the image before reads the same content.
		other := open(t, s.dir, Options{Budget: 1 << 30})
		wantPages(t, other, a, base)
		wantPages(t, other, b, child)
	}
	check("as committed")
	deduplicate(t, s)
	check("complete")
	dropCopies(t, s)
	if s.has(imagePath("b", PagesFile)) {
		t.Fatal("the copy of b is still there")
	}
	check("rebuilt")
	unlinkFlat(t, s, "a")
	check("with a rebuilt as well")
}

func TestImageOfFiles(t *testing.T) {
	s := newImages(t)
	d, err := s.Begin("files")
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(d.Dir(), FilesFile), []byte("a tar"))
	img, err := d.Commit(t.Context(), "", filesParts)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := s.Lease(t.Context(), "files", img.Sum)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(l.Dir(), FilesFile)); err != nil || string(got) != "a tar" {
			t.Fatalf("ReadFile of the leased image: got %q, error %v", got, err)
		}
		l.Release()
		deduplicate(t, s)
	}
	if len(packs(t, s)) != 0 {
		t.Error("files went into a pack")
	}
}

func TestOnlyTheOwnerMayRead(t *testing.T) {
	s := newImages(t)
	d, err := s.Begin("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{StateFile, MetaFile, PagesFile} {
		path := filepath.Join(d.Dir(), name)
		put(t, path, noise(1, 2))
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Commit(t.Context(), "", memoryParts); err != nil {
		t.Fatal(err)
	}
	commit(t, s, "b", "a", noise(2, 3))
	deduplicate(t, s)
	seen := 0
	err = filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		seen++
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[e.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || seen < 15 {
		t.Fatalf("WalkDir found %d files, error %v, want at least 15", seen, err)
	}
}

func TestBeginAndCommitRefuse(t *testing.T) {
	s := newImages(t)
	for _, id := range []string{"", ".", "..", "a/b", "../a", "A", "-a", "a b", "a\n", strings.Repeat("a", 65)} {
		_, err := s.Begin(id)
		wantCode(t, err, fault.Invalid, "snapshot_id_invalid")
		_, err = s.Lease(t.Context(), id, "")
		wantCode(t, err, fault.Invalid, "snapshot_id_invalid")
		wantCode(t, s.Remove(t.Context(), id), fault.Invalid, "snapshot_id_invalid")
	}
	drafts := map[string]func(dir string){
		"nothing":        func(string) {},
		"a part missing": func(dir string) { os.Remove(filepath.Join(dir, MetaFile)) },
		"both kinds":     func(dir string) { put(t, filepath.Join(dir, FilesFile), nil) },
		"another file":   func(dir string) { put(t, filepath.Join(dir, "more"), nil) },
		"an index":       func(dir string) { put(t, filepath.Join(dir, indexFile), nil) },
		"a link": func(dir string) {
			os.Remove(filepath.Join(dir, PagesFile))
			os.Symlink("/etc/passwd", filepath.Join(dir, PagesFile))
		},
		"a second name": func(dir string) { os.Link(filepath.Join(dir, PagesFile), filepath.Join(s.dir, "elsewhere")) },
	}
	for name, spoil := range drafts {
		d, err := s.Begin("x")
		if err != nil {
			t.Fatal(err)
		}
		if name != "nothing" {
			for _, f := range []string{StateFile, MetaFile, PagesFile} {
				put(t, filepath.Join(d.Dir(), f), []byte("data"))
			}
		}
		spoil(d.Dir())
		if _, err := d.Commit(t.Context(), "", memoryParts); err == nil {
			t.Errorf("a draft with %s was committed", name)
		}
		if _, err := os.Stat(d.Dir()); err == nil || s.has(imagePath("x")) {
			t.Errorf("a draft with %s left something", name)
		}
	}
	commit(t, s, "a", "", noise(1, 1))
	_, err := s.Begin("a")
	wantCode(t, err, fault.Exists, "snapshot_exists")
}

// If two processes write the same image, one wins and its image is complete.
func TestTheFirstOfTwoDraftsWins(t *testing.T) {
	s := newImages(t)
	second, err := s.Begin("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{StateFile, MetaFile, PagesFile} {
		put(t, filepath.Join(second.Dir(), f), []byte("data"))
	}
	img := commit(t, s, "a", "", noise(1, 1))
	_, err = second.Commit(t.Context(), "", memoryParts)
	wantCode(t, err, fault.Exists, "snapshot_exists")
	wantPages(t, s, img, noise(1, 1))
	if left, _ := os.ReadDir(filepath.Join(s.dir, draftsDir)); len(left) != 0 {
		t.Errorf("drafts left: %v", left)
	}
}

func TestAnUnknownImageIsNotFound(t *testing.T) {
	s := newImages(t)
	img := commit(t, s, "a", "", noise(1, 1))
	if err := s.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Lease(t.Context(), "a", img.Sum)
	wantCode(t, err, fault.NotFound, "snapshot_not_found")
	if err := s.Remove(t.Context(), "a"); err != nil {
		t.Errorf("second Remove: %v", err)
	}
}
