package crannog

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// newTestFS returns the files of a new sandbox, and the name of an empty directory in them.
func newTestFS(t *testing.T) (*FS, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newSandbox(t).FS().WithContext(t.Context()), strings.TrimPrefix(dir, "/")
}

func TestWriteAndRead(t *testing.T) {
	files, dir := newTestFS(t)
	data := bytes.Repeat([]byte{0, 1, 2, 255}, 50_000)
	for name, perm := range map[string]fs.FileMode{"plain": 0o644, "deep/er/tool": 0o755, "spa ce ü %2f?#": 0o600} {
		full := dir + "/" + name
		if err := files.WriteFile(full, data, perm); err != nil {
			t.Fatal(err)
		}
		back, err := files.ReadFile(full)
		if err != nil || !bytes.Equal(back, data) {
			t.Errorf("%s: ReadFile: got %d bytes, error %v", name, len(back), err)
		}
		info, err := files.Stat(full)
		if err != nil || info.Mode() != perm || info.Size() != int64(len(data)) {
			t.Errorf("%s: Stat: got %v, error %v", name, info, err)
		}
	}
}

func TestMissingFileErrors(t *testing.T) {
	files, dir := newTestFS(t)
	for what, err := range map[string]error{
		"stat": errorOf(files.Stat(dir + "/no")), "open": errorOf(files.Open(dir + "/no")),
		"read": errorOf(files.ReadFile(dir + "/no")), "readdir": errorOf(files.ReadDir(dir + "/no")),
		"remove": files.Remove(dir + "/no"),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of a missing file: got %v, want ErrNotFound", what, err)
		}
	}
	if err := files.RemoveAll(dir + "/no"); err != nil {
		t.Errorf("remove all: %v", err)
	}
}

// Names must be valid for package fs. Other names must not be sent to the guest, for which
// "../../etc" is a path like any other.
func TestInvalidNames(t *testing.T) {
	files, _ := newTestFS(t)
	for _, name := range []string{"", "/etc/passwd", "../etc/passwd", "a/../b", "a//b", "a/"} {
		for what, err := range map[string]error{
			"stat": errorOf(files.Stat(name)), "open": errorOf(files.Open(name)), "read": errorOf(files.ReadFile(name)),
			"readdir": errorOf(files.ReadDir(name)), "write": files.WriteFile(name, nil, 0o644),
			"mkdir": files.MkdirAll(name), "remove": files.RemoveAll(name), "rename": files.Rename(name, "x"),
			"chmod": files.Chmod(0o644, name),
		} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%s of the invalid name %q: got %v, want fs.ErrInvalid", what, name, err)
			}
		}
	}
	if err := files.RemoveAll("."); err == nil {
		t.Error("the root can be removed")
	}
}

func TestDirectoryOperations(t *testing.T) {
	files, dir := newTestFS(t)
	for range 2 {
		if err := files.MkdirAll(dir + "/a/b"); err != nil {
			t.Fatal(err)
		}
	}
	if err := files.WriteFile(dir+"/a/f", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := files.Remove(dir + "/a"); err == nil {
		t.Error("a full directory was removed")
	}
	if err := files.Rename(dir+"/a/f", dir+"/c/g"); err != nil {
		t.Fatal(err)
	}
	if err := files.Remove(dir + "/a/b"); err != nil {
		t.Error(err)
	}
	entries, err := files.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "a" || entries[1].Name() != "c" || !entries[0].IsDir() {
		t.Errorf("ReadDir: got %v, error %v", entries, err)
	}
	if err := files.RemoveAll(dir + "/c"); err != nil {
		t.Error(err)
	}
}

// The standard library's own test of a file system, on a part of the sandbox's.
func TestStandardFS(t *testing.T) {
	files, dir := newTestFS(t)
	for _, name := range []string{"one", "d/two", "d/e/three"} {
		if err := files.WriteFile(dir+"/"+name, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sub, err := fs.Sub(files, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(sub, "one", "d/two", "d/e/three"); err != nil {
		t.Error(err)
	}
}

func TestStatFollowsLinks(t *testing.T) {
	files, dir := newTestFS(t)
	if err := os.Symlink("/etc/hostname", "/"+dir+"/link"); err != nil {
		t.Fatal(err)
	}
	info, err := files.Stat(dir + "/link")
	if err != nil || info.Sys().(*Entry).Link == "" {
		t.Errorf("Stat: got %v, error %v", info, err)
	}
}

func TestUploadStreams(t *testing.T) {
	files, dir := newTestFS(t)
	const size = 40 << 20
	if err := files.Upload(dir+"/big", io.LimitReader(zeros{}, size), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := files.Open(dir + "/big")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, f)
	if err = errors.Join(err, f.Close()); err != nil || n != size {
		t.Errorf("Copy: got %d bytes, want %d, error %v", n, size, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
