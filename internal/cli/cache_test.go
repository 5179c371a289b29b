package cli

import (
	"strings"
	"testing"
)

func TestShortVersion(t *testing.T) {
	for version, want := range map[string]string{
		"sha256:" + strings.Repeat("ab", 32): "sha256:abababababab", "1.0.0": "1.0.0", "sha256:ab": "sha256:ab", "": "",
	} {
		if got := shortVersion(version); got != want {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}
}
