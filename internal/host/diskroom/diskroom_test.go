package diskroom

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// mountDisk mounts a separate small file system for a test and returns its directory.
func mountDisk(t *testing.T) string {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	if err := unix.Mount("diskroom-test", dir, "tmpfs", 0, "size=128m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill uses up all free space of a disk.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !Full(err) {
		t.Fatal(err)
	}
}

// S2: reserved space can be written on a full disk, and no other space can. The reserve is released
// part by part until it is used up.
func TestS2ReserveOnFullDisk(t *testing.T) {
	dir := mountDisk(t)
	ahead, err := os.Create(filepath.Join(dir, "ahead"))
	if err != nil {
		t.Fatal(err)
	}
	defer ahead.Close()
	const n = 1 << 20
	r := New(dir)
	if err := errors.Join(Preallocate(ahead, 0, n), r.Fill(), Check{dir}.Check()); err != nil {
		t.Fatal(err)
	}
	if info, err := ahead.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the file after Preallocate is %v, %v; want size 0", info, err)
	}
	fill(t, dir)
	if _, err := ahead.Write(make([]byte, n)); err != nil {
		t.Errorf("reserved space cannot be written: %v", err)
	}
	if _, err := ahead.Write(make([]byte, n)); !Full(err) {
		t.Errorf("control: a write beyond the reservation returned %v, want a full disk", err)
	}
	if err := (Check{dir}).Check(); fault.CodeOf(err) != "state_disk_low" || fault.HintOf(err) == "" {
		t.Errorf("Check on a full disk returned %v, want state_disk_low with a hint", err)
	}
	parts := 0
	for r.Release() {
		parts++
		if free, _, err := Free(dir); err != nil || free != partSize*int64(parts) {
			t.Errorf("after releasing %d parts, %d bytes are free, error %v; want %d", parts, free, err, partSize*int64(parts))
		}
	}
	if parts == 0 || parts > fullSize/partSize {
		t.Errorf("released %d parts, want 1 to %d", parts, fullSize/partSize)
	}
}

// A sandbox must not get a limit with which it alone could fill the disk.
func TestFitKeepsFloorFree(t *testing.T) {
	dir := mountDisk(t)
	free, total, err := Free(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := (Check{dir}).Fit(4 << 30); got > free-Floor(total) || got < (free-Floor(total))/2 {
		t.Errorf("Fit(4 GiB) is %d with %d bytes free, want the largest power of two above the floor", got, free)
	}
	if got := (Check{dir}).Fit(1 << 20); got != 1<<20 {
		t.Errorf("Fit(1 MiB) is %d, want all of it", got)
	}
	if got := (Check{}).Fit(1 << 40); got != 1<<40 {
		t.Errorf("Fit of the zero Check is %d, want the whole amount", got)
	}
}
