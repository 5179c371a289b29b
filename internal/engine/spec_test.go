package engine_test

import (
	"os"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

func TestSpecCheckKinds(t *testing.T) {
	plain := engine.Info{Name: "plain", Images: []engine.ImageKind{engine.ImageHostView}, Egress: []engine.EgressKind{engine.EgressNone}}
	observer := plain
	observer.Capabilities = []engine.Capability{engine.CanObserve}
	containers := plain
	containers.Containers = true
	good := engine.Spec{ID: "iaaaaaaaaaaaaaaaaaaa", Image: engine.ViewOf("/dir", "/guest")}
	change := func(do func(*engine.Spec)) engine.Spec {
		s := good
		do(&s)
		return s
	}
	full := plain
	full.Volumes, full.TakesWorkspace = true, true
	volume := change(func(s *engine.Spec) { s.Volumes = []engine.Volume{{Source: "/dir", Target: "/mnt/data"}} })
	late := change(func(s *engine.Spec) { s.TakesWorkspace = true })
	events := change(func(s *engine.Spec) { s.Events = os.Stderr })
	inside := change(func(s *engine.Spec) { s.Containers = true })
	for name, c := range map[string]struct {
		info engine.Info
		spec engine.Spec
		want fault.Kind
	}{
		"valid":                   {plain, good, ""},
		"invalid ID":              {plain, change(func(s *engine.Spec) { s.ID = "../x" }), fault.Invalid},
		"another image":           {plain, change(func(s *engine.Spec) { s.Image = engine.Image{Disk: &engine.Disk{}} }), fault.Unsupported},
		"another egress":          {plain, change(func(s *engine.Spec) { s.Egress = engine.Packets(os.Stderr) }), fault.Unsupported},
		"events without observer": {plain, events, fault.Unsupported},
		"events":                  {observer, events, ""},
		"undeclared volumes":      {plain, volume, fault.Unsupported},
		"volumes":                 {full, volume, ""},
		"undeclared workspace":    {plain, late, fault.Unsupported},
		"workspace for memory":    {full, late, ""},
		"containers refused":      {plain, inside, fault.Unsupported},
		"containers":              {containers, inside, ""},
	} {
		err := c.spec.Check(c.info)
		if got := fault.KindOf(err); err == nil != (c.want == "") || err != nil && got != c.want {
			t.Errorf("%s: Check returned %v, want the kind %q", name, err, c.want)
		}
	}
}
