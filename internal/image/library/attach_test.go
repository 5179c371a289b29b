package library

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/registry"
)

func TestReadAttachment(t *testing.T) {
	dir := t.TempDir()
	good, large, pipe := filepath.Join(dir, "good"), filepath.Join(dir, "large"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(good, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := readAttachment(good); err != nil || string(data) != "text" {
		t.Errorf("a file: got %q, error %v", data, err)
	}
	// One byte too many is enough to be refused.
	if data, err := readAttachment(large); err != nil || len(data) != registry.MaxAttachment+1 {
		t.Errorf("a file of a terabyte: got %d bytes, error %v, want %d", len(data), err, registry.MaxAttachment+1)
	}
	for _, path := range []string{pipe, dir, filepath.Join(dir, "missing"), "/dev/zero"} {
		if data, err := readAttachment(path); fault.CodeOf(err) != "attachment_unreadable" {
			t.Errorf("%s: got %d bytes, error %v, want attachment_unreadable", path, len(data), err)
		}
	}
}
