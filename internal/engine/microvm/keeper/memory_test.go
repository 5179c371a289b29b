package keeper

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// newFile returns a file of a size that has only zeros.
func newFile(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err == nil {
		t.Cleanup(func() { f.Close() })
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// blocks returns the size of the data of a file.
func blocks(t *testing.T, f *os.File) int64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}

// Memory that is copied to a file and from there to the memory of another machine is the same, and
// pages of zeros take no space in either.
func TestCopyPagesKeepsContentAndHoles(t *testing.T) {
	const pages = 1000
	want := make([]byte, pages*pageSize)
	for _, page := range []int{0, 1, 7, 255, 256, 257, 511, 900, 999} {
		copy(want[page*pageSize+page:], "content")
	}
	memory, err := newMemory(pages * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	// Written zeros are data for the kernel.
	if _, err := memory.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	const before = 3 * pageSize // of another part in the same file
	saved := newFile(t, before+pages*pageSize)
	if err := CopyPages(saved, before, memory, 0, pages*pageSize); err != nil {
		t.Fatal(err)
	}
	again, err := newMemory(pages * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := CopyPages(again, 0, saved, before, pages*pageSize); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := again.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy of a copy differs: %v", err)
	}
	if full := blocks(t, memory); full < pages*pageSize {
		t.Fatalf("control: the memory has %d bytes of data, want %d", full, pages*pageSize)
	}
	for name, f := range map[string]*os.File{"file": saved, "memory": again} {
		if size := blocks(t, f); size > 20*pageSize {
			t.Errorf("the %s has %d bytes of data for 9 pages", name, size)
		}
	}
}

func TestCopyPagesReportsShortFile(t *testing.T) {
	from, to := newFile(t, 0), newFile(t, 4*pageSize)
	if _, err := from.Write(bytes.Repeat([]byte("x"), 100)); err != nil {
		t.Fatal(err)
	}
	if err := CopyPages(to, 0, from, 0, 4*pageSize); err != nil {
		t.Errorf("the rest of the range is a hole: %v", err)
	}
}

// A machine that is taken over cannot make its memory larger than its limit, or smaller, so that its
// keeper fails.
func TestMemoryCannotChangeItsSize(t *testing.T) {
	memory, err := newMemory(4 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if _, err := memory.WriteAt([]byte("x"), 0); err != nil {
		t.Fatalf("control: the memory is not writable: %v", err)
	}
	for _, size := range []int64{0, 8 * pageSize} {
		if err := memory.Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("size %d: got %v, want EPERM", size, err)
		}
	}
	if _, err := memory.WriteAt([]byte("x"), 8*pageSize); !errors.Is(err, unix.EPERM) {
		t.Errorf("write behind the end: got %v, want EPERM", err)
	}
}
