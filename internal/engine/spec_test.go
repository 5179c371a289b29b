package engine_test

import (
	"os"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

func TestSpecCheck(t *testing.T) {
	blind := engine.Info{Name: "blind", Images: []engine.ImageKind{engine.ImageHostView}, Egress: []engine.EgressKind{engine.EgressNone}}
	seeing := blind
	seeing.Capabilities = []engine.Capability{engine.CanObserve}
	good := engine.Spec{ID: "iaaaaaaaaaaaaaaaaaaa", Image: engine.ViewOf("/dir", "/guest")}
	change := func(do func(*engine.Spec)) engine.Spec {
		s := good
		do(&s)
		return s
	}
	events := change(func(s *engine.Spec) { s.Events = os.Stderr })
	for name, c := range map[string]struct {
		info engine.Info
		spec engine.Spec
		want fault.Kind
	}{
		"all right":      {blind, good, ""},
		"no ID":          {blind, change(func(s *engine.Spec) { s.ID = "../x" }), fault.Invalid},
		"another image":  {blind, change(func(s *engine.Spec) { s.Image = engine.Image{Disk: &engine.Disk{}} }), fault.Unsupported},
		"another egress": {blind, change(func(s *engine.Spec) { s.Egress = engine.Packets(os.Stderr) }), fault.Unsupported},
		"events unseen":  {blind, events, fault.Unsupported},
		"events":         {seeing, events, ""},
	} {
		err := c.spec.Check(c.info)
		if got := fault.KindOf(err); err == nil != (c.want == "") || err != nil && got != c.want {
			t.Errorf("%s: %v, want the kind %q", name, err, c.want)
		}
	}
}
