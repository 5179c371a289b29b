package sandboxid_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandboxid"
)

func TestForm(t *testing.T) {
	for _, id := range []string{"a", "0", "z9", strings.Repeat("a", 40)} {
		if !sandboxid.Valid(id) || sandboxid.Check(id) != nil {
			t.Errorf("%q is refused", id)
		}
	}
	for _, id := range []string{
		"", strings.Repeat("a", 41), ".", "..", "../a", "a/b", "/a", "a\x00", "a\n", "A", "a-b", "a b", "ä", "*", "a.ndjson",
	} {
		if sandboxid.Valid(id) {
			t.Errorf("%q passes", id)
		}
		if err := sandboxid.Check(id); fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != "invalid_id" {
			t.Errorf("%q: %v", id, err)
		}
	}
}
