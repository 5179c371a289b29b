package hosttest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Descriptors lists what a process has open, but for databases: each of their
// pools keeps up to eight connections, two descriptors each, and how many it
// makes depends on how many requests come at once.
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
			continue // closed since
		}
		switch filepath.Ext(to) {
		case ".db", ".db-wal", ".db-shm":
		default:
			open = append(open, to)
		}
	}
	return open
}
