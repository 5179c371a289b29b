package doctest_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/testkit/doctest"
)

func TestListItemWrapsAt100Columns(t *testing.T) {
	if got, want := doctest.ListItem("one  two\nthree"), "- one two three\n"; got != want {
		t.Errorf("ListItem: got %q, want %q", got, want)
	}
	long := doctest.ListItem(strings.Repeat("wörter ", 40))
	lines := strings.Split(strings.TrimSuffix(long, "\n"), "\n")
	for i, line := range lines {
		if n := utf8.RuneCountInString(line); n > 100 || i > 0 && !strings.HasPrefix(line, "  wörter") {
			t.Errorf("ListItem: a line has %d columns: %q", n, line)
		}
	}
	if strings.Count(long, "wörter") != 40 || len(lines) != 3 {
		t.Errorf("ListItem: got %d words in %d lines, want 40 in 3", strings.Count(long, "wörter"), len(lines))
	}
}
