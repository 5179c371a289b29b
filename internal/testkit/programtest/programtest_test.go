package programtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/testkit/programtest"
)

func TestPlaceCopiesBuiltProgram(t *testing.T) {
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
		t.Errorf("the copy contains %q, %v; want the program", data, err)
	}
	if info, err := os.Stat(program); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the copy has mode %v, %v; want 0755", info.Mode(), err)
	}
}

func TestPlaceFailsWithoutProgram(t *testing.T) {
	t.Setenv(programtest.Variable, filepath.Join(t.TempDir(), "none"))
	if program, err := programtest.Place(t.TempDir()); err == nil {
		t.Errorf("Place returned %q for a program that does not exist", program)
	}
}
