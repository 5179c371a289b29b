package egress_test

import (
	"testing"

	"github.com/crannog/crannog/internal/egress"
)

func TestEffectStricter(t *testing.T) {
	for _, test := range []struct {
		a, b egress.Effect
		want bool
	}{
		{egress.Deny, egress.Ask, true}, {egress.Ask, egress.Allow, true}, {egress.Deny, egress.Allow, true},
		{egress.Allow, egress.Ask, false}, {egress.Ask, egress.Deny, false}, {egress.Deny, egress.Deny, false},
		// An invalid effect denies.
		{"", egress.Ask, true}, {"maybe", egress.Deny, false}, {egress.Deny, "maybe", false},
	} {
		if got := test.a.Stricter(test.b); got != test.want {
			t.Errorf("Effect(%q).Stricter(%q) = %v, want %v", test.a, test.b, got, test.want)
		}
	}
}
