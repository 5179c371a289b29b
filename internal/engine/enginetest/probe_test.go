package enginetest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The threat model lists all attempts, and which of them are allowed.
func TestProbesAreDocumented(t *testing.T) {
	data, err := os.ReadFile("../../../docs/reference/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(data)), " ") // lines may break anywhere
	names := slices.Concat(probeNames(), slices.Sorted(maps.Keys(probesByPath)))
	for _, c := range fileChanges {
		names = append(names, c.name)
	}
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/reference/threat-model.md does not name the probe `%s`", name)
		}
	}
	for name, p := range probes {
		for as, why := range p.allowed {
			if !strings.Contains(text, why) {
				t.Errorf("docs/reference/threat-model.md does not give the reason why %s may %s: %s", as, name, why)
			}
		}
	}
}
