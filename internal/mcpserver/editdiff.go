package mcpserver

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"github.com/aymanbagabas/go-udiff/lcs"
)

// Limits of texts that are compared as a whole. The library needs some 60 bytes for each line, so a
// file of newlines needs 60 times its size.
const (
	maxDiffBytes = 1 << 20
	maxDiffLines = 50_000
)

// Limits for comparing two large texts: how much of each is compared at once, and the size of the
// diff, of which maxText is shown.
const (
	windowLines  = 2000
	windowBytes  = 256 << 10
	maxDiff      = 4 * maxText
	contextLines = 3 // lines of context
)

// difference returns the unified diff of two texts. For large texts it compares only the parts that
// differ, and stops when it has as much as can be shown.
func difference(x, y, nameX, nameY string) string {
	if small(x) && small(y) {
		return udiff.Unified(nameX, nameY, x, y)
	}
	f := &finder{x: x, y: y}
	more := f.find()
	if len(f.found) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", nameX, nameY)
	f.write(&b)
	if more {
		b.WriteString("[more changes are not shown]\n")
	}
	return b.String()
}

func small(s string) bool {
	return len(s) <= maxDiffBytes && strings.Count(s, "\n") <= maxDiffLines
}

// position is a place in a text: the number of a line and its offset in bytes.
type position struct{ at, line int }

func (s position) after(lines []string) position {
	for _, l := range lines {
		s.at += len(l)
	}
	s.line += len(lines)
	return s
}

// change is one difference: lines of one text that became lines of the other.
type change struct{ x, endX, y, endY position }

// finder finds the lines in which two texts differ.
type finder struct {
	x, y       string
	endX, endY int // after them, both have the same lines
	atX, atY   position
	found      []change
	amount     int
}

// find compares both texts, and reports whether it stopped before their end.
func (f *finder) find() (more bool) {
	f.endX, f.endY = len(f.x), len(f.y)
	f.skip()
	f.trim()
	for {
		f.skip()
		if f.atX.at == f.endX && f.atY.at == f.endY {
			return false
		}
		if f.amount > maxDiff {
			return true
		}
		f.window()
	}
}

// skip moves past equal lines.
func (f *finder) skip() {
	x, y := f.x[f.atX.at:f.endX], f.y[f.atY.at:f.endY]
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	if n < len(x) || n < len(y) {
		n = strings.LastIndexByte(x[:n], '\n') + 1
	}
	lines := strings.Count(x[:n], "\n")
	f.atX.at, f.atX.line = f.atX.at+n, f.atX.line+lines
	f.atY.at, f.atY.line = f.atY.at+n, f.atY.line+lines
}

// trim removes equal lines at the end, so that one change of any size is found exactly.
func (f *finder) trim() {
	x, y := f.x[f.atX.at:], f.y[f.atY.at:]
	n := 0
	for n < len(x) && n < len(y) && x[len(x)-1-n] == y[len(y)-1-n] {
		n++
	}
	if line := strings.IndexByte(x[len(x)-n:], '\n') + 1; line > 0 {
		f.endX, f.endY = f.endX-n+line, f.endY-n+line
	}
}

// window compares the next lines of both. A difference that reaches the end of the window may not
// be real, and is compared again, unless the texts end there.
func (f *finder) window() {
	x, y := firstLines(f.x[f.atX.at:f.endX]), firstLines(f.y[f.atY.at:f.endY])
	beginX, beginY := f.atX, f.atY
	endX, endY := beginX.after(x), beginY.after(y)
	whole := endX.at == f.endX && endY.at == f.endY
	kept := 0
	for _, d := range lcs.DiffLines(x, y) {
		if !whole && kept > 0 && (d.End == len(x) || d.ReplEnd == len(y)) {
			break
		}
		kept++
		r := change{x: beginX.after(x[:d.Start]), y: beginY.after(y[:d.ReplStart])}
		r.endX, r.endY = r.x.after(x[d.Start:d.End]), r.y.after(y[d.ReplStart:d.ReplEnd])
		f.add(r)
	}
}

// add records a difference, and continues after it.
func (f *finder) add(r change) {
	f.atX, f.atY = r.endX, r.endY
	f.amount += r.endX.at - r.x.at + r.endY.at - r.y.at + r.endX.line - r.x.line + r.endY.line - r.y.line
	if n := len(f.found); n > 0 && f.found[n-1].endX == r.x && f.found[n-1].endY == r.y {
		f.found[n-1].endX, f.found[n-1].endY = r.endX, r.endY
		return
	}
	f.found = append(f.found, r)
}

// firstLines returns the first lines of a text, at least one if there is any.
func firstLines(s string) []string {
	var lines []string
	for left := windowBytes; len(s) > 0 && left > 0 && len(lines) < windowLines; {
		n := strings.IndexByte(s, '\n') + 1
		if n == 0 {
			n = len(s)
		}
		lines = append(lines, s[:n])
		s, left = s[n:], left-n
	}
	return lines
}

// write writes the differences with context. Differences that are close to each other share a hunk.
func (f *finder) write(b *strings.Builder) {
	for i := 0; i < len(f.found); {
		j := i + 1
		for j < len(f.found) && f.found[j].x.line-f.found[j-1].endX.line <= 2*contextLines {
			j++
		}
		first, last := f.found[i], f.found[j-1]
		before, after := linesBefore(f.x[:first.x.at]), linesAfter(f.x[last.endX.at:])
		n, m := strings.Count(before, "\n"), len(firstLines(after))
		fmt.Fprintf(b, "@@ -%s +%s @@\n",
			extent(first.x.line-n, last.endX.line-first.x.line+n+m), extent(first.y.line-n, last.endY.line-first.y.line+n+m))
		writeLines(b, ' ', before)
		at := first.x.at
		for _, r := range f.found[i:j] {
			writeLines(b, ' ', f.x[at:r.x.at])
			writeLines(b, '-', f.x[r.x.at:r.endX.at])
			writeLines(b, '+', f.y[r.y.at:r.endY.at])
			at = r.endX.at
		}
		writeLines(b, ' ', after)
		i = j
	}
}

// linesBefore returns the last lines of a text that ends with a newline.
func linesBefore(s string) string {
	at := len(s)
	for range contextLines {
		if at > 0 {
			at = strings.LastIndexByte(s[:at-1], '\n') + 1
		}
	}
	return s[at:]
}

// linesAfter returns the first lines of a text.
func linesAfter(s string) string {
	at := 0
	for range contextLines {
		if n := strings.IndexByte(s[at:], '\n') + 1; n > 0 {
			at += n
		} else {
			at = len(s)
		}
	}
	return s[:at]
}

// extent formats a range of lines for the head of a hunk.
func extent(from, count int) string {
	switch count {
	case 0:
		return strconv.Itoa(from) + ",0"
	case 1:
		return strconv.Itoa(from + 1)
	}
	return strconv.Itoa(from+1) + "," + strconv.Itoa(count)
}

// writeLines writes lines with a sign before each. It cuts a line that is longer than the limit of
// the whole diff.
func writeLines(b *strings.Builder, sign byte, text string) {
	for len(text) > 0 {
		line := text
		if n := strings.IndexByte(text, '\n') + 1; n > 0 {
			line = text[:n]
		}
		text = text[len(line):]
		b.WriteByte(sign)
		end := len(line)
		if end > maxDiff {
			for end = maxDiff; !utf8.RuneStart(line[end]); end-- {
			}
		}
		b.WriteString(line[:end])
		switch {
		case end < len(line):
			b.WriteString("…\n")
		case line[end-1] != '\n':
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
