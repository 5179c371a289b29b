package programtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/testkit/programtest"
)

func TestWhatWasBuiltIsCopied(t *testing.T) {
	built := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(built, []byte("#!/bin/sh\necho built before\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(programtest.Variable, built)
	program, err := programtest.Place(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(program)
	if err != nil || string(data) != "#!/bin/sh\necho built before\n" {
		t.Errorf("%q, %v", data, err)
	}
	if info, err := os.Stat(program); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("others cannot run it: %v, %v", info.Mode(), err)
	}
}

func TestWhatIsNotThereIsAnError(t *testing.T) {
	t.Setenv(programtest.Variable, filepath.Join(t.TempDir(), "none"))
	if program, err := programtest.Place(t.TempDir()); err == nil {
		t.Errorf("%q was made of nothing", program)
	}
}
