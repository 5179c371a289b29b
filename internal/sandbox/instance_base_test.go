package sandbox_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Rows and snapshots of versions whose sandboxes started only from host directories.
func TestBaseOfBeforeIsRead(t *testing.T) {
	const old = `{"root":{"Dir":"/state/templates/host-1","Binds":[{"Source":"/usr","Target":"/usr"},{"Source":"/state/guest/1","Target":"/.crannog/crannog-guest"}],` +
		`"Guest":"/.crannog/crannog-guest"},"hide":["/workspace/.env"],"revision":"r","knows":1}`
	var base sandbox.Base
	if err := json.Unmarshal([]byte(old), &base); err != nil {
		t.Fatal(err)
	}
	want := engine.ViewOf("/state/templates/host-1", "/.crannog/crannog-guest",
		engine.Bind{Source: "/usr", Target: "/usr"}, engine.Bind{Source: "/state/guest/1", Target: "/.crannog/crannog-guest"})
	if !base.Image.Equal(want) || base.Image.Kind() != engine.ImageHostView || base.Revision != "r" || len(base.Hide) != 1 {
		t.Errorf("read as %+v", base)
	}
	if err := base.CheckRebuildable(); err != nil {
		t.Error(err)
	}
	if data, err := json.Marshal(base); err != nil || !strings.HasPrefix(string(data), old[:len(old)-len(`,"knows":1}`)]) {
		t.Errorf("stored as %s, %v", data, err)
	}
	// Still earlier versions stored nothing of it.
	for _, none := range []string{`{}`, `{"root":{"Dir":"","Binds":null,"Guest":""}}`} {
		var base sandbox.Base
		if err := json.Unmarshal([]byte(none), &base); err != nil || fault.CodeOf(base.CheckRebuildable()) != "sandbox_too_old" {
			t.Errorf("%s: %+v, %v", none, base, err)
		}
	}
}
