package snapshot

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// Names of parts. The writer chooses them, and they mean nothing to this package.
const (
	StateFile = "state"
	MetaFile  = "where.pages"
	PagesFile = "Memory_1"
	FilesFile = "files.tar"
)

// The parts that a writer of memory declares, and those of a writer of files.
var (
	memoryParts = []Part{{StateFile, Small}, {MetaFile, Small}, {PagesFile, Pages}}
	filesParts  = []Part{{FilesFile, Blob}}
)

// open opens images in a directory, without pauses.
func open(t testing.TB, dir string, o Options) *Images {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newImages(t testing.TB) *Images {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "snapshots"), Options{Budget: 1 << 30})
}

// noise returns n unique pages.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n*pageBytes)
	c := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	c.Read(b)
	return b
}

func put(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// commit writes an image of memory.
func commit(t testing.TB, s *Images, id, parent string, pages []byte) Image {
	t.Helper()
	d, err := s.Begin(id)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(d.Dir(), StateFile), []byte("state of "+id))
	put(t, filepath.Join(d.Dir(), MetaFile), []byte("meta of "+id))
	put(t, filepath.Join(d.Dir(), PagesFile), pages)
	img, err := d.Commit(t.Context(), parent, memoryParts)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func deduplicate(t testing.TB, s *Images) {
	t.Helper()
	if _, err := s.Deduplicate(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// load leases an image, verifies it and returns its pages.
func load(ctx context.Context, s *Images, id, sum string) ([]byte, error) {
	l, err := s.Lease(ctx, id, sum)
	if err != nil {
		return nil, err
	}
	defer l.Release()
	if err := l.Verify(ctx); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(l.Dir(), PagesFile))
}

func wantPages(t testing.TB, s *Images, img Image, pages []byte) {
	t.Helper()
	got, err := load(t.Context(), s, img.ID, img.Sum)
	if err != nil {
		t.Fatalf("load of %s: %v", img.ID, err)
	}
	if !bytes.Equal(got, pages) {
		t.Fatalf("%s: other pages than were committed", img.ID)
	}
}

func wantCode(t testing.TB, err error, kind fault.Kind, code string) {
	t.Helper()
	if fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Fatalf("error %v (%s %s), want %s %s", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}

// packs names the packs on disk.
func packs(t testing.TB, s *Images) []string {
	t.Helper()
	s.drain()
	names, err := filepath.Glob(filepath.Join(s.dir, packsDir, "*.pages"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// dropCopies removes the copies of all images that can be rebuilt.
func dropCopies(t testing.TB, s *Images) {
	t.Helper()
	if err := s.evict(1 << 60); err != nil {
		t.Fatal(err)
	}
}

// unlinkFlat removes the file of pages, even of an image whose file is also a pack.
func unlinkFlat(t testing.TB, s *Images, id string) {
	t.Helper()
	if err := os.Remove(filepath.Join(s.dir, imagePath(id, PagesFile))); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}
