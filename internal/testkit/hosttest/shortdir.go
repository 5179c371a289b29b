package hosttest

import (
	"os"
	"testing"
)

// ShortDir returns a directory with a short name, because a socket's path has at most 107 bytes.
// The directory is removed with the test.
func ShortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
