package gvisor

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A server that was killed before a spare kernel had its record leaves nothing
// to the next one, and takes nothing from one that lives.
func TestSparesWithoutARecord(t *testing.T) {
	dir := t.TempDir()
	e, err := New(Options{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	made := func(name string) string {
		path := filepath.Join(e.dir, spareDir+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	self := processOf(os.Getpid())
	earlier := self
	earlier.Start--
	lives := made("klives" + self.suffix())
	over := []string{made("kover" + earlier.suffix()), made("kold"), made("kodd.x-y")}
	if _, err := e.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range over {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if _, err := os.Stat(lives); err != nil {
		t.Error(err)
	}
}
