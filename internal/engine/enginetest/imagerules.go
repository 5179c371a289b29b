package enginetest

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// images returns an image of every kind, with files that do not exist.
func images(dir string) map[engine.ImageKind]engine.Image {
	const digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	file := filepath.Join(dir, "none")
	return map[engine.ImageKind]engine.Image{
		engine.ImageHostView: engine.ViewOf(file, "/guest"),
		engine.ImageLayers:   {Layers: &engine.Layers{Digest: digest, Files: []string{file}}, Guest: "/guest"},
		engine.ImageOCI:      {OCI: &engine.OCI{Ref: "none:none", Digest: digest}, Guest: "/guest"},
		engine.ImageDisk:     {Disk: &engine.Disk{Path: file, Format: "raw"}, Guest: "/guest"},
		engine.ImageModule:   {HostView: &engine.HostView{Dir: file, Runner: &engine.Runner{Path: "/runner"}}, Guest: "/guest"},
	}
}

var imageRules = []rule{
	{"images/undeclared-kinds-are-refused", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		wantRefused := func(name string, image engine.Image, kind fault.Kind, code string) {
			spec := c.spec(newID())
			spec.Image = image
			err := e.Create(t.Context(), spec)
			if fault.KindOf(err) != kind || fault.CodeOf(err) != code {
				t.Errorf("create with %s: got %v, want the code %q", name, err, code)
			}
			if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("create with %s left sandboxes: %v %v", name, list, err)
			}
		}
		kinds := e.Info().Images
		if !slices.Contains(kinds, c.Image.Kind()) {
			t.Errorf("the engine is tested with an image of the kind %q and declares %v", c.Image.Kind(), kinds)
		}
		for kind, image := range images(dir) {
			if !slices.Contains(kinds, kind) {
				wantRefused(string(kind), image, fault.Unsupported, "image_unsupported")
			}
			if other := c.Image; kind != other.Kind() {
				two := image
				two.HostView, two.Guest = other.HostView, other.Guest
				if two.Kind() == "" {
					wantRefused(string(kind)+" and another", two, fault.Invalid, "image_invalid")
				}
			}
		}
	}},
}
