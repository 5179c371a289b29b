package wasmbin_test

import (
	"os"
	"testing"

	"github.com/crannog/crannog/internal/host/embedded/wasmbin"
)

func TestPathIsExecutableOrEmpty(t *testing.T) {
	path, err := wasmbin.Path(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if path == "" {
		t.Log("this build has no program for WebAssembly")
		return
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("program at %s: got %v, %v, want an executable file", path, info, err)
	}
}
