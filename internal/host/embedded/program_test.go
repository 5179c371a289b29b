package embedded_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/crannog/crannog/internal/host/embedded"
)

// program installs a program with the given content, checks its file, and returns its path.
func program(t *testing.T, dir string, content []byte) string {
	t.Helper()
	path, err := embedded.Program(fstest.MapFS{"bin/tool": {Data: content}}, "bin/tool", dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%s holds %d bytes, want %d: %v", path, len(got), len(content), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("%s is %v, %v; want mode 0755", path, info, err)
	}
	return path
}

func TestEachVersionHasSeparateFile(t *testing.T) {
	dir := t.TempDir()
	old := program(t, dir, []byte("first version"))
	if again := program(t, dir, []byte("first version")); again != old {
		t.Errorf("the same program is at %s and %s", old, again)
	}
	if next := program(t, dir, []byte("other version")); next == old {
		t.Error("another version has the same path")
	}
	if got, err := os.ReadFile(old); err != nil || string(got) != "first version" {
		t.Errorf("the first version's file now holds %q, %v", got, err)
	}
}

// A file that a crash or a full disk cut short is not mistaken for the program.
func TestTruncatedFileIsWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("x"), 100<<10)
	path := program(t, dir, content)
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	program(t, dir, content)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v; want one file", entries, err)
	}
}

func TestProgramNotEmbedded(t *testing.T) {
	_, err := embedded.Program(fstest.MapFS{}, "bin/tool", t.TempDir())
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}
