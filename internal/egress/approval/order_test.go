package approval_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/approval"
)

// Finding S1: facts whose names the sandbox controls must not push the important ones out of a
// short prompt.
func TestFindingS1ImportantFactsAreShownFirst(t *testing.T) {
	facts := map[string]string{"target": "", "method": "", "body_sha256": "", "host": "", "zeta": ""}
	for _, c := range "abcdefghijklmnop" {
		facts["header_a"+string(c)] = ""
	}
	names := approval.FactNames(facts)
	if got := strings.Join(names[:3], " "); got != "method target host" || names[len(names)-1] != "body_sha256" || len(names) != len(facts) {
		t.Errorf("the order is %v", names)
	}
}
