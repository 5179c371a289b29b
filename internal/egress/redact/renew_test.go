package redact_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/redact"
)

// A value that becomes known while a stream runs is redacted from then on, wherever the stream was
// split. A value that was known before is still redacted.
func TestRenewRedactsNewValues(t *testing.T) {
	const first, second = "tk-first-Zr8qP2mW", "tk-other-Lx4vB9cd"
	one, err := redact.New([]redact.Value{{Name: "A", Data: []byte(first)}}, redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	two, err := redact.New([]redact.Value{{Name: "B", Data: []byte(second)}, {Name: "A", Data: []byte(first)}}, redact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := "begin " + first + " middle " + second + " end"
	for cut := range len(text) {
		s := one.Stream()
		out := s.Append(nil, []byte(text[:cut]))
		s.Renew(two)
		out = s.Append(out, []byte(text[cut:]))
		got := string(s.End(out))
		if strings.Contains(got, first) || !strings.Contains(got, "[redacted:A]") {
			t.Errorf("cut at %d: got %q, want the old value redacted", cut, got)
		}
		from := strings.Index(text, second)
		if shown := max(0, cut-from); shown < len(second)-5 && strings.Contains(got, second[shown:]) {
			t.Errorf("cut at %d: got %q, want the new value redacted", cut, got)
		}
		if !strings.HasPrefix(got, "begin ") || !strings.HasSuffix(got, " end") || !strings.Contains(got, " middle ") {
			t.Errorf("cut at %d: other text is lost or doubled: %q", cut, got)
		}
		// Without Renew, the stream does not redact the new value.
		s = one.Stream()
		if got := string(s.End(s.Append(nil, []byte(text)))); !strings.Contains(got, second) {
			t.Fatalf("without Renew: got %q, want the new value shown", got)
		}
	}
	// A nil Redactor changes nothing for the values of the one before.
	var none *redact.Redactor
	s := none.Stream()
	s.Append(nil, []byte("x"))
	s.Renew(one)
	s.Renew(nil)
	if got := string(s.End(s.Append(nil, []byte(first)))); got != "[redacted:A]" {
		t.Errorf("after Renew(nil): got %q, want [redacted:A]", got)
	}
}
