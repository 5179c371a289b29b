package gateway

import (
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// A process of an earlier version would pass on packages that the policy refuses.
func TestEarlierProcessGetsNoContentPolicy(t *testing.T) {
	for _, settings := range []string{"content: report", "content: refuse", `tolerated: ["npm:a"]`} {
		layers := lockedDocuments(t, settings)
		if err := checkSupported(layers, withContent-1); fault.CodeOf(err) != "causeway_version" {
			t.Errorf("%s for an earlier process: got %v, want causeway_version", settings, err)
		}
		if err := checkSupported(layers, withContent); err != nil {
			t.Errorf("%s for a current process: %v", settings, err)
		}
	}
}
