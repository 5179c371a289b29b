package gvisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A copy that is on another file system than the sandbox's directory cannot be linked.
func TestStandInIsLinkedOrCopied(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "crannog-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(other); err != nil {
			t.Error(err)
		}
	})
	here := t.TempDir()
	for name, dir := range map[string]string{"linked": here, "copied": other} {
		source, at := filepath.Join(dir, "source"), filepath.Join(here, name)
		if err := os.WriteFile(source, []byte("content"), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := linkOrCopy(source, at); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(at)
		if err != nil || string(data) != "content" {
			t.Errorf("%s: got %q, %v", name, data, err)
		}
		a, errA := os.Stat(source)
		b, errB := os.Stat(at)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if linked := os.SameFile(a, b); linked != (name == "linked") || a.Mode() != b.Mode() {
			t.Errorf("%s: got the same file %v, mode %v, want mode %v", name, linked, b.Mode(), a.Mode())
		}
		if err := linkOrCopy(source, at); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s, a second time: got %v, want that it exists", name, err)
		}
		if err := linkOrCopy(filepath.Join(dir, "none"), at+"2"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, without a source: got %v, want that it does not exist", name, err)
		}
	}
}
