package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
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
