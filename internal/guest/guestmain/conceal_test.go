package guestmain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest"
)

// F1: placeholders of hidden files are removed. Anything else at their paths is the host's own
// file, and ends the boot.
func TestF1ConcealRemovesPlaceholders(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"w/.env": "", "w/keep": "x", "w/full/x": "x", "w/leak": "secret"} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "w", ".ssh"), 0o555); err != nil {
		t.Fatal(err)
	}
	cfg := guest.Config{
		Absent: []string{"/w/.env", "/w/.ssh", "/w/none", "/w/keep/none"},
		Skip:   []guest.Skip{{Index: "/w/keep", Paths: [][]byte{[]byte(".env")}}, {Index: "/w/none"}},
	}
	for range 2 {
		if err := conceal(root, cfg); err != nil {
			t.Fatal(err)
		}
		names, err := filepath.Glob(filepath.Join(root, "w", "*"))
		if err != nil || len(names) != 3 {
			t.Errorf("files after conceal: got %v, %v, want 3", names, err)
		}
	}
	for path, want := range map[string]string{"/w/full": "shows files", "/w/leak": "can be read"} {
		if err := conceal(root, guest.Config{Absent: []string{path}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("conceal %s: got %v, want an error with %q", path, err, want)
		}
	}
	isBelow := below([][]byte{[]byte("a/b"), []byte("c")})
	for name, want := range map[string]bool{"a/b": true, "a/b/x/y": true, "a/bc": false, "a": false, "c": true, "d/c": false} {
		if isBelow(name) != want {
			t.Errorf("%s below a hidden path: got %t, want %t", name, !want, want)
		}
	}
}

// A path that cannot be inspected is an error, because it may be a file of the host that programs
// would see.
func TestConcealFailsIfPathCannotBeInspected(t *testing.T) {
	root := t.TempDir()
	for name, cfg := range map[string]guest.Config{
		"a name that is too long": {Absent: []string{"/" + strings.Repeat("x", 300)}},
		"a directory as an index": {Skip: []guest.Skip{{Index: "/", Paths: [][]byte{[]byte(".env")}}}},
	} {
		if err := conceal(root, cfg); err == nil {
			t.Errorf("conceal accepted %s", name)
		}
	}
}
