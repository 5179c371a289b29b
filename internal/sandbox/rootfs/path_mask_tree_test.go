package rootfs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

func TestListDirStaysInImage(t *testing.T) {
	image, host := t.TempDir(), t.TempDir()
	for _, name := range []string{filepath.Join(image, "opt", "b"), filepath.Join(image, "opt", "a"), filepath.Join(host, "secret")} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("b", filepath.Join(image, "opt", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(host, filepath.Join(image, "out")); err != nil {
		t.Fatal(err)
	}
	view := engine.ViewOf(image, "/guest", engine.Bind{Source: host, Target: "/usr"})
	for dir, want := range map[string][]string{"/": {"opt"}, "/opt": {"a", "b"}, "/usr": {"secret"}, "/usr/secret": nil} {
		if got, err := listDir(view, dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("entries of %s: got %q, %v; want %q", dir, got, err, want)
		}
	}
	// Control: the test above with /usr lists the directory itself.
	if got, err := listDir(view, "/out"); err == nil {
		t.Errorf("a link of the image leads to the host, and %q are listed", got)
	}
}
