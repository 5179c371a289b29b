package overlaytar_test

import (
	"archive/tar"
	"maps"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/engine/linux/overlaytar"
)

// A layer that is no overlay keeps no mark of a removed file. Its initial files that no longer exist
// are written as removed, once per removed directory. A skipped directory was not read, so nothing
// in it counts as removed.
func TestInitialFilesThatAreGoneAreRemovals(t *testing.T) {
	headers, _, err := write(t, layer(t), "work", func(o *overlaytar.Options) {
		o.Initial = []string{
			"work", "work/initial", "work/gone", "work/d/gone", "work/goneDir", "work/goneDir/below",
			"work/initial/was-a-directory", "work/d/e/not-read", "work/elsewhere/f", "other/f",
		}
		o.Skip = func(name string) bool { return name == "work/d/e" }
	})
	if err != nil {
		t.Fatal(err)
	}
	var removed []string
	for name, h := range headers {
		if h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0 {
			removed = append(removed, name)
		}
	}
	slices.Sort(removed)
	if want := []string{"work/d/gone", "work/gone", "work/goneDir"}; !slices.Equal(removed, want) {
		t.Errorf("the removals are %v, want %v", removed, want)
	}
	if headers["work/initial"] == nil || headers["work/d/f"] == nil {
		t.Errorf("files that exist are missing: %v", slices.Collect(maps.Keys(headers)))
	}
	if headers["work/d/e/"] != nil {
		t.Error("a skipped directory was written")
	}
}
