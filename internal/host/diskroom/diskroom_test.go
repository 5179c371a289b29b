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

// disk mounts a separate file system for a test.
func disk(t *testing.T) string {
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
func TestS2Reserves(t *testing.T) {
	dir := disk(t)
	ahead, err := os.Create(filepath.Join(dir, "ahead"))
	if err != nil {
		t.Fatal(err)
	}
	defer ahead.Close()
	const n = 1 << 20
	r := New(dir)
	if err := errors.Join(Ahead(ahead, 0, n), r.Fill(), Check{dir}.Check()); err != nil {
		t.Fatal(err)
	}
	if info, err := ahead.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v", info, err)
	}
	fill(t, dir)
	if _, err := ahead.Write(make([]byte, n)); err != nil {
		t.Errorf("reserved space cannot be written: %v", err)
	}
	if _, err := ahead.Write(make([]byte, n)); !Full(err) {
		t.Errorf("control: %v", err)
	}
	if err := (Check{dir}).Check(); fault.CodeOf(err) != "state_disk_low" || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	parts := 0
	for r.Release() {
		parts++
		if free, _, err := Free(dir); err != nil || free != part*int64(parts) {
			t.Errorf("after %d parts %d bytes are free: %v", parts, free, err)
		}
	}
	if parts == 0 || parts > size/part {
		t.Errorf("%d parts", parts)
	}
}

// No sandbox gets a limit with which it alone could fill the disk.
func TestFit(t *testing.T) {
	dir := disk(t)
	free, total, err := Free(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := (Check{dir}).Fit(4 << 30); got > free-Floor(total) || got < (free-Floor(total))/2 {
		t.Errorf("%d of %d", got, free)
	}
	if got := (Check{dir}).Fit(1 << 20); got != 1<<20 {
		t.Errorf("%d", got)
	}
	if got := (Check{}).Fit(1 << 40); got != 1<<40 {
		t.Errorf("%d", got)
	}
}
