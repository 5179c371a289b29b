package ids_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

func TestValidSandbox(t *testing.T) {
	for _, id := range []string{"a", "0", "z9", strings.Repeat("a", 40)} {
		if !ids.ValidSandbox(id) || ids.CheckSandbox(id) != nil {
			t.Errorf("valid ID %q is rejected", id)
		}
	}
	for _, id := range []string{
		"", strings.Repeat("a", 41), ".", "..", "../a", "a/b", "/a", "a\x00", "a\n", "A", "a-b", "a b", "ä", "*", "a.ndjson",
	} {
		if ids.ValidSandbox(id) {
			t.Errorf("invalid ID %q is accepted", id)
		}
		if err := ids.CheckSandbox(id); fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != "invalid_id" {
			t.Errorf("%q: got error %v, want invalid_id", id, err)
		}
	}
}

// TestNew checks that identifiers and tokens have the right format, are all different, and use each
// character with about the same frequency.
func TestNew(t *testing.T) {
	seen := make(map[string]bool)
	count := make(map[rune]int)
	const draws = 4000
	for range draws {
		id, token := ids.New("i"), ids.NewToken()
		if len(id) != 20 || id[0] != 'i' || !ids.ValidSandbox(id) || len(token) != 40 || !ids.ValidSandbox(token) {
			t.Fatalf("identifier %q, token %q", id, token)
		}
		if seen[id] || seen[token] {
			t.Fatalf("%q or %q was returned twice", id, token)
		}
		seen[id], seen[token] = true, true
		for _, c := range id[1:] + token {
			count[c]++
		}
	}
	// If bytes were taken modulo 36, four letters would be drawn a seventh more often. The standard
	// deviation of a fair draw is below 81 of 6556, so a count never differs by 8 of them.
	expect := draws * (19 + 40) / 36
	for _, c := range "abcdefghijklmnopqrstuvwxyz0123456789" {
		if n := count[c]; n < expect-640 || n > expect+640 {
			t.Errorf("%c was drawn %d times, want about %d", c, n, expect)
		}
	}
}

func TestNewUUID(t *testing.T) {
	a, b := ids.NewUUID(), ids.NewUUID()
	if a == b || a[6]>>4 != 4 || a[8]>>6 != 2 {
		t.Errorf("%x and %x are not two UUIDs of version 4", a, b)
	}
}
