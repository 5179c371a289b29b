package inside

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// tarOf returns the entries of the archive of dir, by their path below it. The names are those of
// the first files, also below it.
func tarOf(t *testing.T, dir, filled string, names ...string) map[string]string {
	t.Helper()
	var list, out bytes.Buffer
	for _, name := range names {
		list.WriteString(strings.TrimPrefix(filepath.Join(dir, name), "/") + "\x00")
	}
	if err := write(&list, &out, []string{dir}, filled); err != nil {
		t.Fatal(err)
	}
	entries := map[string]string{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(dir, "/"+h.Name)
		entries[name] = string(h.Typeflag) + string(data)
	}
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// P82: copies that the guest made at its start are written only if they changed, and first files
// that are gone are written as removed.
func TestOnlyChangesOfCopiesAreWritten(t *testing.T) {
	dir, filled := t.TempDir(), t.TempDir()
	writeFiles(t, filepath.Join(filled, dir), map[string]string{"same": "1", "changed": "1", "sameSize": "1", "gone": "1", "mode": "1"})
	writeFiles(t, dir, map[string]string{"same": "1", "changed": "23", "sameSize": "2", "mode": "1", "new": "3", "kept": "4", "d/kept": "5"})
	for _, at := range []string{dir, filepath.Join(filled, dir)} {
		if err := os.Symlink("same", filepath.Join(at, "link")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "mode"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := tarOf(t, dir, filled, "kept", "d/kept", "d/lost", "lost")
	want := map[string]string{
		".": "5", "changed": "023", "sameSize": "02", "mode": "01", "new": "03", "kept": "04", "d": "5", "d/kept": "05", "d/lost": "3", "lost": "3", "gone": "3",
	}
	if !maps.Equal(got, want) {
		t.Errorf("the archive has %q, want %q", got, want)
	}
}

// A path that is a mount of its own is hidden or protected by the policy. Neither it nor what is
// below it is written, also not as removed.
func TestMountsAreLeftOut(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir, other := t.TempDir(), t.TempDir()
	writeFiles(t, dir, map[string]string{"hidden/key": "1", "seen": "2", "file": "3"})
	writeFiles(t, other, map[string]string{"empty": ""})
	names := []string{"hidden", "hidden/key", "seen", "file"}
	if got := tarOf(t, dir, other, names...); got["hidden/key"] != "01" {
		t.Fatalf("control: without mounts the archive has %q", got)
	}
	for target, source := range map[string]string{"hidden": other, "file": filepath.Join(other, "empty")} {
		target = filepath.Join(dir, target)
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	if got := slices.Sorted(maps.Keys(tarOf(t, dir, t.TempDir(), names...))); !slices.Equal(got, []string{".", "seen"}) {
		t.Errorf("the archive has %q, want only the file that is no mount", got)
	}
}
