package recording

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The names on disk are those of earlier versions, because this version opens their state
// directories.
func TestNamesOnDiskStayTheSame(t *testing.T) {
	dir := t.TempDir()
	s := New(Options{Dir: dir, Budget: 8 << 20})
	n := record(t, s, "box", "short")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "box", "reel.1")); err != nil {
		t.Error(err)
	}
	index, err := os.ReadFile(filepath.Join(dir, "box", "index"))
	if err != nil || !bytes.Contains(index, []byte(`"reel":1,`)) {
		t.Errorf("the index: got %q, %v, want a field \"reel\"", index, err)
	}
	if text := output(t, New(Options{Dir: dir, Budget: 8 << 20}), "box", n); text != "short" {
		t.Errorf("the recording: got %q, want %q", text, "short")
	}
}
