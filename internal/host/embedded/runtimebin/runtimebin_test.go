package runtimebin_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/crannog/crannog/internal/host/embedded/runtimebin"
)

// The program runs only as gVisor's processes, and refuses every command of crannog.
func TestRuntimeRefusesOtherCommands(t *testing.T) {
	path, err := runtimebin.Path(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if path == "" {
		if _, err := os.Stat("bin/crannog-runtime"); err == nil {
			t.Fatal("the program exists and is not embedded")
		}
		return // built without make
	}
	err = exec.Command(path, "serve").Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
		t.Errorf("crannog-runtime serve ended with %v, want exit code 2", err)
	}
}
