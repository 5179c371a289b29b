package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

func write(t *testing.T, name, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func nothingDenied(string) bool { return false }

func TestCopyExcludesDeniedFiles(t *testing.T) {
	source, c := t.TempDir(), New(filepath.Join(t.TempDir(), "copies"))
	write(t, filepath.Join(source, "a", "run.sh"), "#!/bin/sh\n", 0o755|fs.ModeSetuid)
	write(t, filepath.Join(source, ".env"), "KEY=1", 0o600)
	write(t, filepath.Join(source, "b", ".ssh", "id"), "key", 0o600)
	if err := os.Symlink("/etc/passwd", filepath.Join(source, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(source, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := c.Make(t.Context(), "box1", source, 1<<20, func(p string) bool {
		return p == "/.env" || strings.HasPrefix(p, "/b/.ssh/")
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	err = filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		found = append(found, strings.TrimPrefix(p, dir))
		return err
	})
	if want := []string{"", "/a", "/a/run.sh", "/b", "/link"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("copied files: got %q, error %v, want %q", found, err, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "a", "run.sh")); err != nil || info.Mode() != 0o755 {
		t.Errorf("mode of the copy: got %v, error %v, want 0755", info.Mode(), err)
	}
	if target, err := os.Readlink(filepath.Join(dir, "link")); err != nil || target != "/etc/passwd" {
		t.Errorf("Readlink: got %q, error %v", target, err)
	}
	write(t, filepath.Join(dir, "a", "run.sh"), "changed", 0o755)
	if text, err := os.ReadFile(filepath.Join(source, "a", "run.sh")); err != nil || string(text) != "#!/bin/sh\n" {
		t.Errorf("the source: got %q, error %v, want it unchanged", text, err)
	}
	if list, err := c.List(); err != nil || !slices.Equal(list, []string{"box1"}) {
		t.Errorf("List: got %q, error %v, want box1", list, err)
	}
	if err := c.Remove("box1"); err != nil {
		t.Fatal(err)
	}
	if list, err := c.List(); err != nil || len(list) > 0 {
		t.Errorf("List: got %q, error %v, want no copy", list, err)
	}
}

func TestCopyIsBoundedAndLeavesNothing(t *testing.T) {
	source, c := t.TempDir(), New(filepath.Join(t.TempDir(), "copies"))
	write(t, filepath.Join(source, "big"), strings.Repeat("x", 1000), 0o600)
	_, err := c.Make(t.Context(), "box1", source, 999, nothingDenied)
	if fault.CodeOf(err) != "workspace_too_large" {
		t.Fatalf("Make beyond the limit: got %v, want workspace_too_large", err)
	}
	if list, err := c.List(); err != nil || len(list) > 0 {
		t.Errorf("List: got %q, error %v, want no copy", list, err)
	}
	if _, err := c.Make(t.Context(), "../x", source, 1<<20, nothingDenied); fault.KindOf(err) != fault.Invalid {
		t.Errorf("Make with an invalid ID: got %v, want Invalid", err)
	}
	if _, err := c.Make(t.Context(), "box1", filepath.Join(source, "absent"), 1<<20, nothingDenied); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Make without a source: got %v, want no such file", err)
	}
}

// F3: a sandbox has copies of several directories, which are found by its ID and are removed
// together.
func TestF3CopiesOfParts(t *testing.T) {
	source, c := t.TempDir(), New(filepath.Join(t.TempDir(), "copies"))
	write(t, filepath.Join(source, "x"), "x", 0o600)
	if err := os.Chmod(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for part := range 3 {
		if _, err := c.MakePart(t.Context(), "box1", part, source, 1<<20, nothingDenied); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := c.FindPart("box1", 2)
	if err != nil {
		t.Fatal(err)
	}
	// access(2) has to let the sandbox's user in.
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of the copy: got %v, error %v, want 0755", info.Mode(), err)
	}
	if list, err := c.List(); err != nil || !slices.Equal(list, []string{"box1"}) {
		t.Errorf("List: got %q, error %v, want box1", list, err)
	}
	if _, err := c.MakePart(t.Context(), "box1", MaxParts, source, 1<<20, nothingDenied); err == nil {
		t.Error("MakePart accepted more parts than Remove removes")
	}
	if err := c.Remove("box1"); err != nil {
		t.Fatal(err)
	}
	if list, err := c.List(); err != nil || len(list) > 0 {
		t.Errorf("List: got %q, error %v, want no copy", list, err)
	}
}

// If a program of the host replaces a file by a link while the workspace is copied, a file that the
// policy denies must not be copied. A pipe that replaces a file must not block the copy.
func TestLinkThatReplacedAFileIsNotCopied(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, filepath.Join(from, ".env"), "secret", 0o600)
	roots := make([]*os.Root, 2)
	for i, dir := range []string{from, to} {
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		roots[i] = root
	}
	w := &copier{from: roots[0], to: roots[1], left: 1 << 20, denied: nothingDenied}
	for name, swap := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink(".env", path) },
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"file": func(path string) error { return os.WriteFile(path, []byte("other"), 0o600) }, // the control
	} {
		path := filepath.Join(from, name)
		write(t, path, "public", 0o600)
		info, err := roots[0].Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(path), swap(path)); err != nil {
			t.Fatal(err)
		}
		err = w.file(name, info)
		text, _ := os.ReadFile(filepath.Join(to, name))
		if swapped := name != "file"; errors.Is(err, fs.ErrNotExist) != swapped || swapped && len(text) > 0 || !swapped && string(text) != "other" {
			t.Errorf("%s: file: got copy %q, error %v", name, text, err)
		}
	}
}
