package changeset

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// contextLines is how many lines are shown around a change.
const contextLines = 3

// side is one side of a text difference.
type side struct {
	kind string // mode as git writes it; "" means that there is no file
	text []byte
}

// unified returns the diff of one path in git's format. No name and no line can be mistaken for a
// header: names are quoted, and lines begin with their sign.
func unified(name string, x, y side) (text string, added, removed int) {
	if x.kind != "" && y.kind != "" && x.kind[:2] != y.kind[:2] {
		// If a link replaces a file or the reverse, git shows one removal and one creation.
		removal, _, removed := unified(name, x, side{})
		creation, added, _ := unified(name, side{}, y)
		return removal + creation, added, removed
	}
	var b strings.Builder
	a, bb := quote("a/"+name), quote("b/"+name)
	fmt.Fprintf(&b, "diff --git %s %s\n", a, bb)
	switch {
	case x.kind == "":
		fmt.Fprintf(&b, "new file mode %s\n", y.kind)
	case y.kind == "":
		fmt.Fprintf(&b, "deleted file mode %s\n", x.kind)
	case x.kind != y.kind:
		fmt.Fprintf(&b, "old mode %s\nnew mode %s\n", x.kind, y.kind)
	}
	xs, ys := splitLines(x.text), splitLines(y.text)
	edits := diffLines(xs, ys)
	if len(edits) > 0 || x.kind == "" || y.kind == "" {
		fmt.Fprintf(&b, "index %s..%s", blob(x), blob(y))
		if x.kind == y.kind {
			b.WriteString(" " + x.kind)
		}
		b.WriteByte('\n')
	}
	added, removed = countEdits(edits)
	if len(edits) == 0 {
		if x.kind == y.kind {
			return "", 0, 0 // only mode bits differ that git does not store
		}
		return b.String(), 0, 0
	}
	from, to := a, bb
	if x.kind == "" {
		from = "/dev/null"
	}
	if y.kind == "" {
		to = "/dev/null"
	}
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", from, to)
	writeHunks(&b, xs, ys, edits)
	return b.String(), added, removed
}

// blob returns git's abbreviated ID of some content.
func blob(s side) string {
	if s.kind == "" {
		return "0000000"
	}
	h := sha1.New() // git's own hash; nothing depends on its strength
	fmt.Fprintf(h, "blob %d\x00", len(s.text))
	h.Write(s.text)
	return hex.EncodeToString(h.Sum(nil))[:7]
}

// writeHunks writes the edits with their context.
func writeHunks(b *strings.Builder, x, y []string, edits []edit) {
	for i := 0; i < len(edits); {
		j := i + 1
		for j < len(edits) && edits[j].from-edits[j-1].to <= 2*contextLines {
			j++
		}
		first, last := edits[i], edits[j-1]
		from, to := max(first.from-contextLines, 0), min(last.to+contextLines, len(x))
		newFrom, newTo := first.newFrom-(first.from-from), last.newTo+(to-last.to)
		fmt.Fprintf(b, "@@ -%s +%s @@\n", extent(from, to), extent(newFrom, newTo))
		at := from
		for _, e := range edits[i:j] {
			writeLines(b, ' ', x[at:e.from])
			writeLines(b, '-', x[e.from:e.to])
			writeLines(b, '+', y[e.newFrom:e.newTo])
			at = e.to
		}
		writeLines(b, ' ', x[at:to])
		i = j
	}
}

// extent returns a range of lines as in the header of a hunk.
func extent(from, to int) string {
	switch to - from {
	case 0:
		return strconv.Itoa(from) + ",0"
	case 1:
		return strconv.Itoa(from + 1)
	}
	return strconv.Itoa(from+1) + "," + strconv.Itoa(to-from)
}

// writeLines writes lines that begin with a sign.
func writeLines(b *strings.Builder, sign byte, lines []string) {
	for _, l := range lines {
		b.WriteByte(sign)
		b.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// quote quotes a name as git does if necessary, with invisible bytes in octal.
func quote(name string) string {
	var b strings.Builder
	needsQuotes := false
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(name[i])
			needsQuotes = true
		case r == '\n':
			b.WriteString(`\n`)
			needsQuotes = true
		case r == '\t':
			b.WriteString(`\t`)
			needsQuotes = true
		case r == ' ':
			// git accepts such a name without quotes, but patch cannot find its end.
			b.WriteByte(' ')
			needsQuotes = true
		case r != utf8.RuneError && unicode.IsPrint(r):
			b.WriteString(name[i : i+n])
		default:
			for _, c := range []byte(name[i : i+n]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
			needsQuotes = true
		}
		i += n
	}
	if !needsQuotes {
		return name
	}
	return `"` + b.String() + `"`
}
