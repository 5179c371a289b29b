package engine_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

func TestEgressCheck(t *testing.T) {
	end, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	attach := func(context.Context, *os.File) ([]byte, error) { return nil, nil }
	tap := []engine.EgressKind{engine.EgressTap}
	both := []engine.EgressKind{engine.EgressNone, engine.EgressPackets}
	for name, c := range map[string]struct {
		egress engine.Egress
		kinds  []engine.EgressKind
		code   string
	}{
		"loopback":                  {engine.Egress{}, both, ""},
		"loopback by name":          {engine.Egress{Kind: engine.EgressNone}, both, ""},
		"packets":                   {engine.Packets(end), both, ""},
		"packets without an end":    {engine.Packets(nil), both, "egress_invalid"},
		"an end without a kind":     {engine.Egress{End: end}, both, "egress_unsupported"},
		"loopback with an end":      {engine.Egress{Kind: engine.EgressNone, End: end}, both, "egress_invalid"},
		"a kind of another engine":  {engine.Egress{Kind: engine.EgressTap, End: end}, both, "egress_unsupported"},
		"a proxy of another engine": {engine.Egress{Kind: engine.EgressProxy, End: end}, both, "egress_unsupported"},
		"an unknown kind":           {engine.Egress{Kind: "pakets", End: end}, both, "egress_unsupported"},
		"a tap that is attached":    {engine.Egress{Kind: engine.EgressTap, Attach: attach}, tap, ""},
		"a tap with an end":         {engine.Egress{Kind: engine.EgressTap, End: end}, tap, "egress_invalid"},
		"a tap with both":           {engine.Egress{Kind: engine.EgressTap, End: end, Attach: attach}, tap, "egress_invalid"},
		"packets that are attached": {engine.Egress{Kind: engine.EgressPackets, Attach: attach}, both, "egress_invalid"},
		"no loopback on the engine": {engine.Egress{}, both[1:], "egress_unsupported"},
		"an engine without kinds":   {engine.Packets(end), nil, "egress_unsupported"},
	} {
		err := c.egress.Check(c.kinds)
		if (err == nil) != (c.code == "") || err != nil && fault.CodeOf(err) != c.code {
			t.Errorf("%s: Check returned %v, want the code %q", name, err, c.code)
		}
	}
}

func TestStoredSpecHasNoEgress(t *testing.T) {
	spec := engine.Spec{ID: "a", Egress: engine.Packets(os.Stdin)}
	if data, err := json.Marshal(spec); err != nil || strings.Contains(string(data), "Egress") {
		t.Errorf("stored as %s, %v", data, err)
	}
	if bare := spec.Bare(); bare.Egress.Connected() || bare.Egress.Kind != "" {
		t.Errorf("a bare specification has the egress %v", bare.Egress)
	}
	// Earlier versions stored the field under the name Link.
	var old engine.Spec
	if err := json.Unmarshal([]byte(`{"ID":"a","Root":{"Dir":"/r"},"Link":null}`), &old); err != nil || old.Image.View().Dir != "/r" || old.Egress.Connected() {
		t.Errorf("read as %+v, %v", old, err)
	}
}
