package guestbin_test

import (
	"os"
	"testing"

	"github.com/crannog/crannog/internal/host/embedded/guestbin"
)

func TestPathIsExecutable(t *testing.T) {
	dir := t.TempDir()
	path, err := guestbin.Path(dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode()&0o111 == 0 {
		t.Fatalf("guest at %s: got %v, %v, want an executable file", path, info, err)
	}
	again, err := guestbin.Path(dir)
	if err != nil || again != path {
		t.Fatalf("a second call gives %s, %v", again, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if guestbin.Embedded() == (path == self) {
		t.Errorf("embedded is %v but the path is %s", guestbin.Embedded(), path)
	}
}
