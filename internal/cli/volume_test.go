package cli

import (
	"testing"

	"github.com/crannog/crannog/api"
)

func TestSplitVolume(t *testing.T) {
	for text, want := range map[string]api.VolumeMount{
		"a:/b": {Name: "a", Target: "/b"}, "a:/b/:ro": {Name: "a", Target: "/b", ReadOnly: true}, "a.b:/c/d:rw": {Name: "a.b", Target: "/c/d"},
	} {
		if got, err := splitVolume(text); err != nil || got != want {
			t.Errorf("splitVolume(%q): got %+v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", ":/b", "a:b", "/a:/b", "./a:/b", "../a:/b", "a:", "a:ro"} {
		if got, err := splitVolume(text); err == nil {
			t.Errorf("splitVolume(%q): got %+v, want an error", text, got)
		}
	}
}
