package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestZeroBudgetIsLimited(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	d, err := s.Begin("a")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Abort()
	free, err := s.free()
	if err != nil {
		t.Fatal(err)
	}
	if s.space.budget <= 0 || s.space.budget > defaultBudget || s.space.budget > free/4 {
		t.Errorf("budget: got %d with %d bytes free, want at most a quarter and the default", s.space.budget, free)
	}
	if _, err := Open(t.TempDir(), Options{Budget: -1}); err == nil {
		t.Error("Open accepted a negative budget")
	}
}

func TestBudgetIsEnforced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	const one = 200 * pageBytes
	s := open(t, dir, Options{Budget: 2*one + one/2})
	a := commit(t, s, "a", "", noise(1, 200))
	commit(t, s, "b", "", noise(2, 200))

	d, err := s.Begin("c")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{StateFile, MetaFile} {
		put(t, filepath.Join(d.Dir(), f), []byte("data"))
	}
	put(t, filepath.Join(d.Dir(), PagesFile), noise(3, 200))
	_, err = d.Commit(t.Context(), "", memoryParts)
	wantCode(t, err, fault.Exhausted, "snapshot_budget")
	if fault.HintOf(err) == "" || s.has(imagePath("c")) {
		t.Errorf("rejected Commit: got hint %q, image left %v, want a hint and no image", fault.HintOf(err), s.has(imagePath("c")))
	}
	if left, _ := os.ReadDir(filepath.Join(dir, draftsDir)); len(left) != 0 {
		t.Errorf("drafts left: %v", left)
	}
	// Another process counts the same, and removed bytes are free again.
	full := open(t, dir, Options{Budget: 2 * one})
	_, err = full.Begin("c")
	wantCode(t, err, fault.Exhausted, "snapshot_budget")
	wantPages(t, full, a, noise(1, 200))
	if err := s.Remove(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	d, err = full.Begin("c")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Abort(), d.Abort()); err != nil {
		t.Error(err)
	}
}

// Copies are removed to free space for images. Leased copies are not.
func TestCopiesAreRemovedForNewImages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	const one = 400 * pageBytes
	s := open(t, dir, Options{Budget: 16 * one})
	images, pages := chain(t, s, 3, 400, 5)
	deduplicate(t, s)
	tight := open(t, dir, Options{Budget: 3*one + one/2})
	held, err := tight.Lease(t.Context(), images[1].ID, images[1].Sum)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, tight, "new", "", noise(9, 400))
	if tight.has(imagePath("s2", PagesFile)) || !tight.has(imagePath("s1", PagesFile)) {
		t.Error("the wrong copy was removed, want that of s2")
	}
	if err := held.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	held.Release()
	// A lease still gets its copy: a sandbox must not be lost to the budget.
	wantPages(t, tight, images[2], pages[2])
	wantPages(t, tight, images[1], pages[1])
}

// small mounts a disk of a few megabytes.
func small(t *testing.T, size string) string {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func TestAFullDiskLeavesNothing(t *testing.T) {
	dir := filepath.Join(small(t, "24m"), "snapshots")
	s := open(t, dir, Options{Budget: 1 << 30})
	a := commit(t, s, "a", "", noise(1, 256))
	d, err := s.Begin("b")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{StateFile, MetaFile} {
		put(t, filepath.Join(d.Dir(), f), []byte("data"))
	}
	// The engine fills the disk.
	werr := os.WriteFile(filepath.Join(d.Dir(), PagesFile), make([]byte, 32<<20), 0o600)
	wantCode(t, d.Fault(werr), fault.Exhausted, "disk_full")
	wantCode(t, d.Fault(errors.New("engine: write: no space left on device")), fault.Exhausted, "disk_full")
	// Here only the manifest does not fit.
	_, err = d.Commit(t.Context(), "a", memoryParts)
	wantCode(t, err, fault.Exhausted, "disk_full")
	if left, _ := os.ReadDir(filepath.Join(dir, draftsDir)); len(left) != 0 || s.has(imagePath("b")) {
		t.Errorf("drafts left after a failed Commit: %v", left)
	}
	if err := d.Fault(errors.New("another trouble")); fault.KindOf(err) != fault.Internal {
		t.Errorf("Fault of another error: got %v, want Internal", err)
	}
	// Begin requires some free space.
	put(t, filepath.Join(filepath.Dir(dir), "ballast"), make([]byte, 12<<20))
	_, err = s.Begin("b")
	wantCode(t, err, fault.Exhausted, "disk_full")
	wantPages(t, s, a, noise(1, 256))
	deduplicate(t, s)
}

// Completion and rebuilding on a full disk fail without damage, and leave nothing behind.
func TestAFullDiskHarmsNoImage(t *testing.T) {
	base := small(t, "48m")
	dir := filepath.Join(base, "snapshots")
	s := open(t, dir, Options{Budget: 1 << 30})
	a := commit(t, s, "a", "", noise(1, 1024))
	data := noise(2, 2048)
	b := commit(t, s, "b", "a", data)
	ballast := filepath.Join(base, "ballast")
	os.WriteFile(ballast, make([]byte, 64<<20), 0o600)
	_, err := s.Deduplicate(t.Context())
	wantCode(t, err, fault.Exhausted, "disk_full")
	wantPages(t, s, a, noise(1, 1024))
	wantPages(t, s, b, data)
	os.Remove(ballast)
	deduplicate(t, s)
	dropCopies(t, s)
	os.WriteFile(ballast, make([]byte, 64<<20), 0o600)
	_, err = load(t.Context(), s, "b", b.Sum)
	wantCode(t, err, fault.Exhausted, "disk_full")
	if left, _ := os.ReadDir(filepath.Join(dir, draftsDir)); len(left) != 0 {
		t.Errorf("drafts left: %v", left)
	}
	os.Remove(ballast)
	wantPages(t, s, b, data)
}
