package pullthrough

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/content"
)

// A file is read for its first inspection only, and memory has a limit.
func TestInspectionsAreRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	form, _ := content.FormOf(packages.Artifact{Ecosystem: packages.NPM, Name: "a"}, "/a/-/a-1.0.0.tgz")
	c := New(nil, time.Now)
	look := func() ([]content.Finding, error) { return content.Inspect(t.Context(), form, f, 10) }
	if found, err := c.inspect(t.Context(), inspection{"1", form}, look); err != nil || len(found) != 1 {
		t.Fatalf("the first inspection: got %v, %v", found, err)
	}
	f.Close()
	if found, err := c.inspect(t.Context(), inspection{"1", form}, look); err != nil || len(found) != 1 {
		t.Errorf("the second inspection, without the file: got %v, %v", found, err)
	}
	for range 2 {
		if found, err := c.inspect(t.Context(), inspection{"2", form}, look); err == nil {
			t.Errorf("control: a file that cannot be read: got %v", found)
		}
	}
	for n := range maxInspected + 10 {
		c.inspected.keep(inspection{strconv.Itoa(n), form}, nil)
	}
	if n := len(c.inspected.results); n != maxInspected {
		t.Errorf("%d results are remembered, want %d", n, maxInspected)
	}
}
