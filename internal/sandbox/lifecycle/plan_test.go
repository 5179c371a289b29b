package lifecycle

import (
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		p    limited
		good []string
		bad  []string
	}{
		{namePattern, []string{"a", "A.b-c_d", strings.Repeat("a", 63)}, []string{"", "-a", "a b", "a\n", "é", strings.Repeat("a", 64)}},
		{envPattern, []string{"A", "é", strings.Repeat("é", 256)}, []string{"", "A=B", "A\n", "\x7f", strings.Repeat("é", 257)}},
		{hostPattern, []string{"localhost:${PORT}", "[::1]:80", strings.Repeat("a", 255)}, []string{"", "-a", "a/b", "a\r\nb", strings.Repeat("a", 256)}},
	} {
		for _, s := range c.good {
			if !c.p.MatchString(s) {
				t.Errorf("%s refuses %q", c.p.expression.Regexp(), s)
			}
		}
		for _, s := range c.bad {
			if c.p.MatchString(s) {
				t.Errorf("%s accepts %q", c.p.expression.Regexp(), s)
			}
		}
	}
}
