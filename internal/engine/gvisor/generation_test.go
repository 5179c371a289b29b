package gvisor

import (
	"os"
	"path/filepath"
	"testing"
)

// P7: states of this version's format and of the first generation can be restored. States of other
// versions of gVisor, other processors or later generations cannot.
func TestFormatsThatAreRestored(t *testing.T) {
	e := &Engine{}
	own := e.Format()
	first := own[:len(own)-len("/"+generation)]
	for format, want := range map[string]bool{
		own:                 true,
		first:               true,
		own + "0":           false,
		first + "/3":        false,
		first + "/":         false,
		"gvisor/v0/amd64/2": false,
		"gvisor/v0/amd64":   false,
		"":                  false,
		"/" + generation:    false,
	} {
		if got := e.Restores(format); got != want {
			t.Errorf("%q: %v", format, got)
		}
	}
}

// A file that is not a saved state causes an error before a kernel is created.
func TestNoSavedState(t *testing.T) {
	dir := t.TempDir()
	if _, err := kindToRestore(running, dir); err == nil {
		t.Error("an empty directory is a state")
	}
	if err := os.WriteFile(filepath.Join(dir, stateFiles[0]), []byte("not a state"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kindToRestore(running, dir); err == nil {
		t.Error("a file of another kind is a state")
	}
}
