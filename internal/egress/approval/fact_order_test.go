package approval_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/approval"
)

// Attack: a sandbox adds facts whose names it controls, to push the important facts out of a short
// prompt.
func TestFactNamesPutImportantFactsFirst(t *testing.T) {
	facts := map[string]string{"target": "", "method": "", "body_sha256": "", "host": "", "zeta": ""}
	for _, c := range "abcdefghijklmnop" {
		facts["header_a"+string(c)] = ""
	}
	names := approval.FactNames(facts)
	if got := strings.Join(names[:3], " "); got != "method target host" || names[len(names)-1] != "body_sha256" || len(names) != len(facts) {
		t.Errorf("FactNames = %v, want method, target, host first and the digest last", names)
	}
}
