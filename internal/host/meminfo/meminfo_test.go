package meminfo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadField(t *testing.T) {
	file := filepath.Join(t.TempDir(), "meminfo")
	text := "MemTotal:       1000 kB\nMemAvailable:   10 kB\nBroken: x kB\nHugePages_Total: 3\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := read(file, "MemAvailable:"); err != nil || got != 10<<10 {
		t.Errorf("read of MemAvailable: got %d, error %v, want 10240", got, err)
	}
	for _, name := range []string{"Broken:", "HugePages_Total:", "None:"} {
		if got, err := read(file, name); err == nil {
			t.Errorf("read of %s: got %d, want an error", name, got)
		}
	}
	if _, err := read(file, "None:"); err == nil || !strings.Contains(err.Error(), "has no field None") {
		t.Errorf("read of a missing field: got %v, want an error with its name", err)
	}
}

func TestHost(t *testing.T) {
	total, err := Total()
	available, availableErr := Available()
	if err != nil || availableErr != nil || available <= 0 || available > total {
		t.Errorf("got %d available of %d bytes, errors %v and %v", available, total, availableErr, err)
	}
}
