package examine

import (
	"encoding/json"
	"testing"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/content"
	"github.com/crannog/crannog/internal/packages/store"
)

// A result stays small, however many names one content has.
func TestResultsAreBounded(t *testing.T) {
	r := &result{}
	for _, a := range []packages.Artifact{{Ecosystem: packages.NPM}, {Ecosystem: packages.Crates}, {Ecosystem: packages.PyPI}} {
		for range 2 * maxForms {
			form, _ := content.FormOf(a, "/a.zip")
			r.add(form, nil)
		}
	}
	if len(r.Inspected) != 3 {
		t.Errorf("got %d results, want one for each form", len(r.Inspected))
	}
}

func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"sha256":"a","inspected":[{"form":"tar","revision":"1","findings":[{"code":"escape","details":["x"]}]}],"scan":{"scanner":"v","found":"x","at":"2026-01-01T00:00:00Z"}}`))
	f.Add([]byte(`{"sha256":"a","scan":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := parseResult("a", text)
		if r.SHA256 != "a" || len(r.Inspected) > maxForms {
			t.Errorf("%s: got %+v", text, r)
		}
		form, _ := content.FormOf(packages.Artifact{Ecosystem: packages.NPM}, "/a.tgz")
		r.add(form, nil)
		if out, err := json.Marshal(r); err != nil || len(out) > store.MaxResult {
			t.Errorf("a result of %d bytes cannot be stored: %v", len(out), err)
		}
	})
}
