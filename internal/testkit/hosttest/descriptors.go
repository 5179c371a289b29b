package hosttest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Descriptors lists the open files of a process, without those of databases: each database pool
// keeps up to eight connections with two descriptors each, and their number depends on how many
// requests arrive at once.
func Descriptors(t testing.TB, pid int) (open []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed during the listing
		}
		switch filepath.Ext(to) {
		case ".db", ".db-wal", ".db-shm":
		default:
			open = append(open, to)
		}
	}
	return open
}

// WithoutDescriptors calls a function while this process cannot open files.
func WithoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// A limit of 3 refuses new descriptors. Open ones stay open.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	if _, err := os.ReadFile("/proc/self/stat"); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("control: opening a file: error %v, want EMFILE", err)
	}
	do()
}
