package guestmain

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// fill copies an image's files with their modes and links. It keeps existing files, and skips
// devices and pipes.
func TestFillKeepsExistingFiles(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
	for _, dir := range []string{from, filepath.Join(from, "sub"), filepath.Join(from, "closed"), filepath.Join(to, "sub")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	replaceFile := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	replaceFile(filepath.Join(from, "sub/new"), "image", 0o644)
	replaceFile(filepath.Join(from, "sub/run"), "image", 0o755)
	replaceFile(filepath.Join(from, "sub/existing"), "image", 0o644)
	replaceFile(filepath.Join(to, "sub/existing"), "mine", 0o644)
	for _, err := range []error{
		os.Symlink("new", filepath.Join(from, "sub/link")), os.Symlink("new", filepath.Join(from, "sub/other")), os.Symlink("changed", filepath.Join(to, "sub/other")),
		unix.Mkfifo(filepath.Join(from, "sub/pipe"), 0o644), os.Chmod(filepath.Join(from, "closed"), 0o555),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := fill(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"sub/new": "image", "sub/run": "image", "sub/existing": "mine", "sub/link": "image"} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("content of %s: got %q, %v, want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]string{"sub/link": "new", "sub/other": "changed"} {
		if got, err := os.Readlink(filepath.Join(to, name)); err != nil || got != want {
			t.Errorf("target of %s: got %q, %v, want %q", name, got, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(to, "sub/run")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("mode of sub/run: got %v %v, want executable", info, err)
	}
	if info, err := os.Stat(filepath.Join(to, "closed")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of closed: got %v %v, want 0755", info, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "sub/pipe")); err == nil {
		t.Error("fill copied a pipe")
	}
	if err := fill(from, to); err != nil {
		t.Errorf("second fill: %v", err)
	}
	if err := fill(filepath.Join(from, "none"), to); err != nil {
		t.Errorf("fill from a missing directory: %v", err)
	}
	// If a program has put a file in place of a directory, the guest must not stop without an
	// error.
	replaceFile(filepath.Join(to, "file"), "x", 0o644)
	if err := fill(from, filepath.Join(to, "file")); err == nil {
		t.Error("fill below a file returned no error")
	}
}
