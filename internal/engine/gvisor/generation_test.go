package gvisor

import (
	"os"
	"path/filepath"
	"testing"
)

// P7: states of this version's format and of the first generation can be restored. States of other
// versions of gVisor, other processors or later generations cannot.
func TestRestoresFormatsOfKnownGenerations(t *testing.T) {
	e := &Engine{}
	current := e.Format()
	first := current[:len(current)-len("/"+generation)]
	for format, want := range map[string]bool{
		current:             true,
		first:               true,
		current + "0":       false,
		first + "/3":        false,
		first + "/":         false,
		"gvisor/v0/amd64/2": false,
		"gvisor/v0/amd64":   false,
		"":                  false,
		"/" + generation:    false,
	} {
		if got := e.Restores(format); got != want {
			t.Errorf("Restores(%q) = %v, want %v", format, got, want)
		}
	}
}

// A file that is not a saved state causes an error before a kernel is created.
func TestKindToRestoreRejectsOtherFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := kindToRestore(systrapName, dir); err == nil {
		t.Error("an empty directory was accepted as a state")
	}
	if err := os.WriteFile(filepath.Join(dir, stateFiles[0]), []byte("not a state"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kindToRestore(systrapName, dir); err == nil {
		t.Error("another file was accepted as a state")
	}
}
