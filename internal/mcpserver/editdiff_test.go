package mcpserver

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/aymanbagabas/go-udiff"
)

// applyDiff applies a change to a text as patch would, and fails if a hunk does not match the text.
func applyDiff(t *testing.T, text, diff string) string {
	t.Helper()
	var have []string
	for rest := text; rest != ""; {
		n := strings.IndexByte(rest, '\n') + 1
		if n == 0 {
			n = len(rest)
		}
		have, rest = append(have, rest[:n]), rest[n:]
	}
	var out strings.Builder
	at, made := 0, 0
	lines := strings.SplitAfter(diff, "\n")
	for i := 2; i < len(lines) && lines[i] != ""; {
		var from, count, to, grown int
		head := strings.NewReplacer(",", " ", "@@ -", "", "+", "", " @@\n", "").Replace(withLengths(lines[i]))
		if _, err := fmt.Sscan(head, &from, &count, &to, &grown); err != nil {
			t.Fatalf("%q: %v", lines[i], err)
		}
		if count > 0 {
			from--
		}
		if grown > 0 {
			to--
		}
		for ; at < from; at, made = at+1, made+1 {
			out.WriteString(have[at])
		}
		if made != to {
			t.Fatalf("%q is at line %d", lines[i], made)
		}
		for i++; count+grown > 0; i++ {
			line := lines[i]
			if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "\\ No newline") {
				line = strings.TrimSuffix(line, "\n")
			}
			if line[0] != '+' {
				if have[at] != line[1:] {
					t.Fatalf("line %d is %q, and the diff says %q", at+1, have[at], line)
				}
				at, count = at+1, count-1
			}
			if line[0] != '-' {
				out.WriteString(line[1:])
				made, grown = made+1, grown-1
			}
			if len(line) < len(lines[i]) {
				i++
			}
		}
	}
	return out.String() + strings.Join(have[at:], "")
}

// withLengths adds the length to ranges of a hunk header that are one line long and written without
// it.
func withLengths(head string) string {
	parts := strings.Fields(head)
	for i, p := range parts {
		if i > 0 && i < 3 && !strings.Contains(p, ",") {
			parts[i] += ",1"
		}
	}
	return strings.Join(parts, " ") + "\n"
}

// The diff of two large texts turns the first into the second, wherever and however they differ.
func TestLargeDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 200 {
		lines := make([]string, maxDiffLines+10)
		kinds := []int{1, 3, 1 << 30}[i%3]
		for n := range lines {
			lines[n] = fmt.Sprintln(r.IntN(kinds))
		}
		x := strings.Join(lines, "")
		for range 1 + r.IntN(4) {
			at, n := r.IntN(len(lines)), r.IntN(20)
			if i%5 == 0 {
				at = []int{0, len(lines) - n}[r.IntN(2)]
			}
			if i%7 == 0 {
				n = r.IntN(4000)
			}
			end := min(at+n, len(lines))
			more := make([]string, r.IntN(5))
			for m := range more {
				more[m] = fmt.Sprintln("new", r.IntN(3))
			}
			lines = append(lines[:at:at], append(more, lines[end:]...)...)
		}
		y := strings.Join(lines, "")
		if i%4 == 0 {
			x = strings.TrimSuffix(x, "\n")
		}
		if i%8 == 0 {
			y = strings.TrimSuffix(y, "\n")
		}
		diff := difference(x, y, "a", "b")
		if strings.HasSuffix(diff, "shown]\n") {
			if len(diff) < maxDiff/2 {
				t.Errorf("%d: a diff of %d bytes is incomplete", i, len(diff))
			}
			continue
		}
		if got := applyDiff(t, x, diff); got != y {
			t.Fatalf("%d: the diff gives another text:\n%.2000s", i, diff)
		}
	}
}

// Where a large text differs in a few places, the library would return the same, except that it
// counts wrongly after two differences that are close to each other.
func TestLargeDifferencesMatchTheLibrary(t *testing.T) {
	var b strings.Builder
	for i := range maxDiffLines + 1 {
		fmt.Fprintln(&b, "line", i)
	}
	x := b.String()
	y := strings.Replace(x, "line 7\n", "", 1)
	y = strings.Replace(y, "line 1200\n", "line 1200\nand\n", 1)
	y = strings.Replace(y, "line 30000\n", "line xxx\n", 1)
	y = strings.Replace(y, "line 49999\n", strings.Repeat("many\n", 5000), 1)
	if got, want := difference(x, y, "a", "b"), udiff.Unified("a", "b", x, y); got != want {
		t.Errorf("difference: got %.2000s", got)
	}
}

// A file of newlines, all of which an edit changes, takes little memory, and only a part of the
// difference is shown.
func TestDifferencesAreBounded(t *testing.T) {
	newlines, line := strings.Repeat("\n", maxEdited), strings.Repeat("\u20ac", maxEdited/3)
	for name, c := range map[string]struct {
		x, y string
		more bool
	}{
		"one of many":   {newlines, newlines[1:] + "x", false},
		"at both ends":  {newlines, "a" + newlines[2:] + "x\n", false},
		"twice as many": {newlines[:maxEdited/2], newlines, true},
		"each":          {newlines[:maxEdited/2], strings.Repeat("x\n", maxEdited/2), true},
		"one line":      {line, line + "y", false},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		diff := difference(c.x, c.y, "a", "b")
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 || len(diff) > 2<<20 {
			t.Errorf("%s: a diff of %d bytes took %d", name, len(diff), took)
		}
		if strings.HasSuffix(diff, "shown]\n") != c.more || !strings.HasPrefix(diff, "--- a\n+++ b\n@@ -") {
			t.Errorf("%s: %.100q", name, diff)
		}
	}
}
