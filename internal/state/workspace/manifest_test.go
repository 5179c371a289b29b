package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

func TestManifestHasStateAtStart(t *testing.T) {
	source, m := t.TempDir(), NewManifests(filepath.Join(t.TempDir(), "manifests"))
	write(t, filepath.Join(source, "a", "b.txt"), "text", 0o640)
	write(t, filepath.Join(source, "secret", "key"), "k", 0o600)
	write(t, filepath.Join(source, "odd\xff\nname"), "", 0o600)
	if err := os.Symlink("a/b.txt", filepath.Join(source, "link")); err != nil {
		t.Fatal(err)
	}
	if err := m.Make(t.Context(), "box1", source, func(p string) bool { return p == "secret" }); err != nil {
		t.Fatal(err)
	}
	// The manifest does not contain a change after the start.
	write(t, filepath.Join(source, "a", "b.txt"), "longer text", 0o600)
	got, err := m.Find("box1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range got.Start {
		names = append(names, e.Path)
	}
	if want := []string{"a", "a/b.txt", "link", "odd\xff\nname"}; !slices.Equal(names, want) {
		t.Fatalf("got %q, want %q", names, want)
	}
	if e := got.Start[1]; e.Size != 4 || e.Mode != 0o640 || e.Type != changeset.Regular || e.Ino == 0 || e.CTime.IsZero() || got.Start[2].Target != "a/b.txt" {
		t.Errorf("Find: got the entries %+v and %+v", e, got.Start[2])
	}
	info, err := os.Stat(filepath.Join(m.path, "box1"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the manifest: got %v, error %v, want 0600", info.Mode(), err)
	}
	if err := m.Make(t.Context(), "box1", source, nil); fault.KindOf(err) != fault.Exists {
		t.Errorf("second Make: got %v, want Exists", err)
	}
}

func TestManifestsOfCopiesAreIndependent(t *testing.T) {
	source, m := t.TempDir(), NewManifests(filepath.Join(t.TempDir(), "manifests"))
	write(t, filepath.Join(source, "x"), "1", 0o600)
	if err := m.Make(t.Context(), "box1", source, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Refer("box2", "box1"); err != nil {
		t.Fatal(err)
	}
	now := []changeset.Entry{
		{Path: "x", Type: changeset.Regular, Size: 9, MTime: time.Unix(5, 7), CTime: time.Unix(6, 0), Ino: 3},
		{Path: "gone"},
	}
	if err := m.Amend("box2", now); err != nil {
		t.Fatal(err)
	}
	one, err := m.Find("box1")
	if err != nil || len(one.Brought) > 0 {
		t.Fatalf("Find of the first manifest: got brought files %+v, error %v, want none", one.Brought, err)
	}
	if err := m.Remove("box1"); err != nil {
		t.Fatal(err)
	}
	two, err := m.Find("box2")
	if err != nil || len(two.Start) != 1 || len(two.Brought) != 2 || two.Brought[0].Path != "gone" || !reflect.DeepEqual(two.Brought[1], now[0]) {
		t.Fatalf("Find of the second manifest: got %+v, error %v", two, err)
	}
	// In mode copy this is the only manifest.
	if err := m.Amend("box3", now[:1]); err != nil {
		t.Fatal(err)
	}
	// Files that a crash left are removed, and files that another process is writing are not.
	for name, age := range map[string]time.Duration{".new-1": 2 * writeTime, ".new-2": 0} {
		if err := os.WriteFile(filepath.Join(m.path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(m.path, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := m.List(); err != nil || !slices.Equal(list, []string{"box2", "box3"}) {
		t.Errorf("List: got %q, error %v", list, err)
	}
	if left, err := os.ReadDir(m.path); err != nil || len(left) != 3 || left[0].Name() != ".new-2" {
		t.Errorf("files after List: got %v, error %v, want three", left, err)
	}
	if err := m.Remove("box9"); err != nil {
		t.Error(err)
	}
	if _, err := m.Find("box1"); fault.CodeOf(err) != "manifest_gone" {
		t.Errorf("Find of a removed manifest: got %v, want manifest_gone", err)
	}
	if _, err := m.Find("../x"); fault.KindOf(err) != fault.Invalid {
		t.Errorf("Find of an invalid ID: got %v, want Invalid", err)
	}
	if err := m.Refer("box4", "box9"); fault.CodeOf(err) != "manifest_gone" {
		t.Errorf("Refer to a missing manifest: got %v, want manifest_gone", err)
	}
}

func TestTruncatedManifestIsRejected(t *testing.T) {
	source, m := t.TempDir(), NewManifests(filepath.Join(t.TempDir(), "manifests"))
	for i := range 50 {
		write(t, filepath.Join(source, fmt.Sprint(i)), "1", 0o600)
	}
	if err := m.Make(t.Context(), "box1", source, nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(m.path, "box1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(m.path, "box1"), info.Size()/2); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Find("box1"); err == nil {
		t.Error("half a manifest was read")
	}
}

func BenchmarkManifest(b *testing.B) {
	for _, n := range []int{10_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			source := b.TempDir()
			for i := range n {
				dir := filepath.Join(source, fmt.Sprintf("directory-%d", i/100))
				if i%100 == 0 {
					if err := os.Mkdir(dir, 0o755); err != nil {
						b.Fatal(err)
					}
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%d.txt", i)), nil, 0o644); err != nil {
					b.Fatal(err)
				}
			}
			m := NewManifests(b.TempDir())
			b.Run("make", func(b *testing.B) {
				for b.Loop() {
					if err := m.Make(b.Context(), "box1", source, nil); err != nil {
						b.Fatal(err)
					}
					if err := m.Remove("box1"); err != nil {
						b.Fatal(err)
					}
				}
			})
			if err := m.Make(b.Context(), "box1", source, nil); err != nil {
				b.Fatal(err)
			}
			b.Run("find", func(b *testing.B) {
				for b.Loop() {
					if _, err := m.Find("box1"); err != nil {
						b.Fatal(err)
					}
				}
			})
			info, err := os.Stat(filepath.Join(m.path, "box1"))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(info.Size()), "file-bytes")
		})
	}
}
