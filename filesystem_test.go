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

// at returns the sandbox's files and a directory in them, as a name.
func at(t *testing.T) (*FS, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newSandbox(t).FS().WithContext(t.Context()), strings.TrimPrefix(dir, "/")
}

func TestWriteAndRead(t *testing.T) {
	files, dir := at(t)
	data := bytes.Repeat([]byte{0, 1, 2, 255}, 50_000)
	for name, perm := range map[string]fs.FileMode{"plain": 0o644, "deep/er/tool": 0o755, "spa ce ü %2f?#": 0o600} {
		full := dir + "/" + name
		if err := files.WriteFile(full, data, perm); err != nil {
			t.Fatal(err)
		}
		back, err := files.ReadFile(full)
		if err != nil || !bytes.Equal(back, data) {
			t.Errorf("%s: %d bytes, %v", name, len(back), err)
		}
		info, err := files.Stat(full)
		if err != nil || info.Mode() != perm || info.Size() != int64(len(data)) {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
}

func TestMissing(t *testing.T) {
	files, dir := at(t)
	for what, err := range map[string]error{
		"stat": second(files.Stat(dir + "/no")), "open": second(files.Open(dir + "/no")),
		"read": second(files.ReadFile(dir + "/no")), "readdir": second(files.ReadDir(dir + "/no")),
		"remove": files.Remove(dir + "/no"),
	} {
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := files.RemoveAll(dir + "/no"); err != nil {
		t.Errorf("remove all: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// Names are those of package fs. Others must not reach the wire, where
// "../../etc" would be a path like any other.
func TestInvalidNames(t *testing.T) {
	files, _ := at(t)
	for _, name := range []string{"", "/etc/passwd", "../etc/passwd", "a/../b", "a//b", "a/"} {
		for what, err := range map[string]error{
			"stat": second(files.Stat(name)), "open": second(files.Open(name)), "read": second(files.ReadFile(name)),
			"readdir": second(files.ReadDir(name)), "write": files.WriteFile(name, nil, 0o644),
			"mkdir": files.MkdirAll(name), "remove": files.RemoveAll(name), "rename": files.Rename(name, "x"),
			"chmod": files.Chmod(0o644, name),
		} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	if err := files.RemoveAll("."); err == nil {
		t.Error("the root can be removed")
	}
}

func TestDirectories(t *testing.T) {
	files, dir := at(t)
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
		t.Errorf("%v %v", entries, err)
	}
	if err := files.RemoveAll(dir + "/c"); err != nil {
		t.Error(err)
	}
}

// The standard library's own test of a file system, on a part of the sandbox's.
func TestStandardFS(t *testing.T) {
	files, dir := at(t)
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

func TestLinks(t *testing.T) {
	files, dir := at(t)
	if err := os.Symlink("/etc/hostname", "/"+dir+"/link"); err != nil {
		t.Fatal(err)
	}
	info, err := files.Stat(dir + "/link")
	if err != nil || info.Sys().(*Entry).Link == "" {
		t.Errorf("%v %v", info, err)
	}
}

func TestUploadStreams(t *testing.T) {
	files, dir := at(t)
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
		t.Errorf("%d bytes: %v", n, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
