package runtimebin_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/crannog/crannog/internal/host/embedded/runtimebin"
)

// The program has its roles and does nothing else.
func TestTheProgramRefusesWhatIsNoPartOfIts(t *testing.T) {
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
		t.Errorf("%v", err)
	}
}
