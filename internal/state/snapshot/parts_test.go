package snapshot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

func TestInvalidParts(t *testing.T) {
	for name, parts := range map[string][]Part{
		"none":            nil,
		"only small ones": {{"a", Small}},
		"two big ones":    {{"a", Pages}, {"b", Blob}},
		"one name twice":  {{"a", Small}, {"a", Pages}},
		"no kind":         {{"a", ""}, {"b", Pages}},
		"a name of ours":  {{indexFile, Small}, {"b", Pages}},
		"a path":          {{"../a", Pages}},
		"a hidden one":    {{".a", Pages}},
		"no name":         {{"", Pages}},
		"too long a name": {{strings.Repeat("a", 65), Pages}},
	} {
		if err := checkParts(parts); err == nil {
			t.Errorf("%s: %v is accepted", name, parts)
		}
	}
	for _, parts := range [][]Part{memoryParts, filesParts, {{"vm.state", Small}, {"disk.qcow2", Blob}}} {
		if err := checkParts(parts); err != nil {
			t.Errorf("checkParts(%v): %v", parts, err)
		}
	}
}

// asFirst rewrites an image's manifest as one of the first format.
func asFirst(t *testing.T, s *Images, img Image) {
	t.Helper()
	m, err := s.authentic(img.ID, img.Sum)
	if err != nil {
		t.Fatal(err)
	}
	first := firstManifest{Format: firstFormat, ID: m.ID, Parent: m.Parent, Made: m.Made, Bulk: m.Bulk}
	first.Bulk.Kind = ""
	if m.Bulk.Kind == Pages {
		state, meta := m.Parts[0], m.Parts[1]
		state.Name, meta.Name = "", ""
		first.State, first.Meta = &state, &meta
	}
	data, err := seal(first, img.Sum)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte(StateFile+`"`)) && m.Bulk.Kind == Blob || bytes.Contains(data, []byte("kind")) {
		t.Fatalf("not of the first format: %s", data)
	}
	put(t, filepath.Join(s.dir, imagePath(img.ID, manifestFile)), data)
}

// Images that an earlier version has made are read and completed, if their writer is known.
func TestImagesOfTheFirstFormat(t *testing.T) {
	for _, complete := range []bool{false, true} {
		s := newImages(t)
		s.declared = [][]Part{{{"vm.state", Small}, {"disk", Pages}}, memoryParts}
		pages := noise(1, 20)
		a, b := commit(t, s, "a", "", pages), commit(t, s, "b", "a", pages)
		d, err := s.Begin("f")
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(d.Dir(), FilesFile), []byte("a tar"))
		f, err := d.Commit(t.Context(), "", filesParts)
		if err != nil {
			t.Fatal(err)
		}
		if complete {
			deduplicate(t, s)
		}
		for _, img := range []Image{a, b, f} {
			asFirst(t, s, img)
		}
		check := func() {
			t.Helper()
			for _, img := range []Image{a, b} {
				if got, err := load(t.Context(), s, img.ID, img.Sum); err != nil || !bytes.Equal(got, pages) {
					t.Errorf("complete %t: load of %s: got %d bytes, error %v", complete, img.ID, len(got), err)
				}
			}
			l, err := s.Lease(t.Context(), "f", f.Sum)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			if err := l.Verify(t.Context()); err != nil {
				t.Error(err)
			}
		}
		check()
		deduplicate(t, s)
		check()
		if err := s.evict(1 << 60); err != nil || s.has(imagePath("b", PagesFile)) {
			t.Errorf("complete %t: evict: got error %v, or the copy of b is still there", complete, err)
		}
		check()

		// No writer has declared these names.
		asFirst(t, s, a)
		s.declared = [][]Part{{{"vm.state", Small}, {"disk", Pages}}}
		if _, err := load(t.Context(), s, "a", a.Sum); fault.CodeOf(err) != "snapshot_damaged" {
			t.Errorf("load with parts of an unknown writer: got %v, want snapshot_damaged", err)
		}
		deduplicate(t, s)
		if _, err := os.Stat(filepath.Join(s.dir, imagePath("a", PagesFile))); err != nil {
			t.Errorf("pages of an unknown writer were removed: %v", err)
		}
	}
}
