package hosttest

import (
	"os"
	"path/filepath"
	"testing"
)

// Files creates a directory with files that contain their own name, and opens it as a root.
func Files(t testing.TB, mode os.FileMode, names ...string) (string, *os.Root) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return dir, root
}
