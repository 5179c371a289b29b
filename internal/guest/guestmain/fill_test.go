package guestmain

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An image's files fill an empty directory, with their modes and links. What a program has written
// there stays, and devices and pipes are left out.
func TestFill(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), t.TempDir()
	for _, dir := range []string{from, filepath.Join(from, "sub"), filepath.Join(from, "closed"), filepath.Join(to, "sub")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(from, "sub/new"), "image", 0o644)
	put(filepath.Join(from, "sub/run"), "image", 0o755)
	put(filepath.Join(from, "sub/there"), "image", 0o644)
	put(filepath.Join(to, "sub/there"), "mine", 0o644)
	for _, err := range []error{
		os.Symlink("new", filepath.Join(from, "sub/link")), os.Symlink("new", filepath.Join(from, "sub/other")), os.Symlink("elsewhere", filepath.Join(to, "sub/other")),
		unix.Mkfifo(filepath.Join(from, "sub/pipe"), 0o644), os.Chmod(filepath.Join(from, "closed"), 0o555),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := fill(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"sub/new": "image", "sub/run": "image", "sub/there": "mine", "sub/link": "image"} {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"sub/link": "new", "sub/other": "elsewhere"} {
		if got, err := os.Readlink(filepath.Join(to, name)); err != nil || got != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(to, "sub/run")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("a program is not executable: %v %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(to, "closed")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("nothing can be written into a directory: %v %v", info, err)
	}
	if _, err := os.Lstat(filepath.Join(to, "sub/pipe")); err == nil {
		t.Error("a pipe was made")
	}
	if err := fill(from, to); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := fill(filepath.Join(from, "none"), to); err != nil {
		t.Errorf("an image with nothing to fill in: %v", err)
	}
	// If a program has put a file in place of a directory, the guest must not stop without an
	// error.
	put(filepath.Join(to, "file"), "x", 0o644)
	if err := fill(from, filepath.Join(to, "file")); err == nil {
		t.Error("files were written below a file")
	}
}
