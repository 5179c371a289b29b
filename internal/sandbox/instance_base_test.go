package sandbox_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// TestBaseOfEarlierVersionIsRead reads the base of a version whose sandboxes started only from host
// directories.
func TestBaseOfEarlierVersionIsRead(t *testing.T) {
	const old = `{"root":{"Dir":"/state/templates/host-1","Binds":[{"Source":"/usr","Target":"/usr"},{"Source":"/state/guest/1","Target":"/.crannog/crannog-guest"}],` +
		`"Guest":"/.crannog/crannog-guest"},"hide":["/workspace/.env"],"revision":"r","knows":1}`
	var base sandbox.Base
	if err := json.Unmarshal([]byte(old), &base); err != nil {
		t.Fatal(err)
	}
	want := engine.ViewOf("/state/templates/host-1", "/.crannog/crannog-guest",
		engine.Bind{Source: "/usr", Target: "/usr"}, engine.Bind{Source: "/state/guest/1", Target: "/.crannog/crannog-guest"})
	if !base.Image.Equal(want) || base.Image.Kind() != engine.ImageHostView || base.Revision != "r" || len(base.Hide) != 1 {
		t.Errorf("base is read as %+v", base)
	}
	if err := base.CheckRebuildable(); err != nil {
		t.Error(err)
	}
	if data, err := json.Marshal(base); err != nil || !strings.HasPrefix(string(data), old[:len(old)-len(`,"knows":1}`)]) {
		t.Errorf("base is stored as %s, %v", data, err)
	}
	// Still earlier versions stored no image.
	for _, none := range []string{`{}`, `{"root":{"Dir":"","Binds":null,"Guest":""}}`} {
		var base sandbox.Base
		if err := json.Unmarshal([]byte(none), &base); err != nil || fault.CodeOf(base.CheckRebuildable()) != "sandbox_too_old" {
			t.Errorf("base stored as %s: got %+v, %v; want sandbox_too_old", none, base, err)
		}
	}
}

// TestMasksOfEarlierVersions checks that memory of an earlier version, which hides and protects the
// same paths in another way, is restored only if that way is as strict.
func TestMasksOfEarlierVersions(t *testing.T) {
	const env, envrc, other = "/workspace/.env", "/workspace/.envrc", "/workspace/other"
	protected := func(path string) bool { return path == envrc }
	for name, c := range map[string]struct {
		asked, saved sandbox.Base
		why          string
	}{
		"hidden and protected":  {sandbox.Base{Absent: []string{env}}, sandbox.Base{Hide: []string{env}, ReadOnly: []string{envrc}}, ""},
		"beside what is hidden": {sandbox.Base{Hide: []string{"/usr/x"}, Absent: []string{env}}, sandbox.Base{Hide: []string{env, "/usr/x"}}, ""},
		"as this version":       {sandbox.Base{Absent: []string{env}}, sandbox.Base{Absent: []string{env}}, ""},
		"seen in the memory":    {sandbox.Base{Absent: []string{env, other}}, sandbox.Base{Hide: []string{env}}, "leaves out " + other},
		"to be seen":            {sandbox.Base{}, sandbox.Base{Hide: []string{env}}, "no longer hides " + env},
		"a name that was free":  {sandbox.Base{Hide: []string{env}}, sandbox.Base{Absent: []string{env}}, "hides " + env},
		"writable in memory":    {sandbox.Base{ReadOnly: []string{envrc}}, sandbox.Base{}, "makes read-only " + envrc},
		"to be written":         {sandbox.Base{}, sandbox.Base{ReadOnly: []string{other}}, "no longer makes read-only " + other},
	} {
		got := c.asked.WithMasksOf(c.saved, protected)
		why := got.Difference(c.saved)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: difference %q, want %q", name, why, c.why)
		}
		if masks := [][]string{got.Hide, got.Absent, got.ReadOnly}; why == "" && !reflect.DeepEqual(masks, [][]string{c.saved.Hide, c.saved.Absent, c.saved.ReadOnly}) {
			t.Errorf("%s: the masks are %q", name, masks)
		}
	}
}
