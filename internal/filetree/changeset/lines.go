package changeset

import (
	"bytes"
	"hash/maphash"
	"slices"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// binary reports whether content has no lines to show.
func binary(text []byte) bool {
	return bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text)
}

// splitLines splits text after each line end.
func splitLines(text []byte) []string {
	var lines []string
	for len(text) > 0 {
		n := bytes.IndexByte(text, '\n') + 1
		if n == 0 {
			n = len(text)
		}
		lines = append(lines, string(text[:n]))
		text = text[n:]
	}
	return lines
}

// edit states that the old lines [from, to) were replaced by the new lines [newFrom, newTo).
type edit struct{ from, to, newFrom, newTo int }

// diffLines compares lines. The search between two anchors is limited, so that a sandbox cannot
// cause a long computation. Parts that differ too much are shown as replaced.
func diffLines(x, y []string) []edit {
	var all []edit
	at, atNew := 0, 0
	for _, p := range append(anchors(x, y), [2]int{len(x), len(y)}) {
		for _, d := range lcs.DiffLines(x[at:p[0]], y[atNew:p[1]]) {
			all = appendEdit(all, edit{at + d.Start, at + d.End, atNew + d.ReplStart, atNew + d.ReplEnd})
		}
		at, atNew = p[0], p[1]
	}
	return all
}

// appendEdit joins adjacent edits.
func appendEdit(all []edit, e edit) []edit {
	if n := len(all); n > 0 && all[n-1].to == e.from && all[n-1].newTo == e.newFrom {
		all[n-1].to, all[n-1].newTo = e.to, e.newTo
		return all
	}
	return append(all, e)
}

// anchors returns the indexes of equal lines that occur exactly once on each side. It returns the
// longest sequence in which the lines have the same order on both sides.
func anchors(x, y []string) [][2]int {
	// occurrences has the last index of a line on each side, and how often the line occurs.
	type occurrences struct{ x, y, inX, inY int }
	seen := make(map[string]*occurrences, len(x))
	for i, l := range x {
		p := seen[l]
		if p == nil {
			p = &occurrences{}
			seen[l] = p
		}
		p.x, p.inX = i, p.inX+1
	}
	for i, l := range y {
		if p := seen[l]; p != nil {
			p.y, p.inY = i, p.inY+1
		}
	}
	// ends[k] is the pair with the smallest y at the end of a sequence of k+1 pairs.
	var pairs [][2]int
	// before[i] is the pair before pair i in its sequence, or -1.
	var ends, before []int
	for i, l := range x {
		p := seen[l]
		if p.inX != 1 || p.inY != 1 {
			continue
		}
		k, _ := slices.BinarySearchFunc(ends, p.y, func(e, y int) int { return pairs[e][1] - y })
		last := -1
		if k > 0 {
			last = ends[k-1]
		}
		if pairs, before = append(pairs, [2]int{i, p.y}), append(before, last); k == len(ends) {
			ends = append(ends, 0)
		}
		ends[k] = len(pairs) - 1
	}
	if len(ends) == 0 {
		return nil
	}
	var longest [][2]int
	for i := ends[len(ends)-1]; i >= 0; i = before[i] {
		longest = append(longest, pairs[i])
	}
	slices.Reverse(longest)
	return longest
}

// countEdits returns the numbers of added and removed lines.
func countEdits(edits []edit) (added, removed int) {
	for _, e := range edits {
		added += e.newTo - e.newFrom
		removed += e.to - e.from
	}
	return added, removed
}

// countUnordered counts the lines that only one side has, regardless of the order. It is for texts
// that are too large for diffLines.
func countUnordered(x, y []byte) (added, removed int) {
	seed, counts := maphash.MakeSeed(), map[uint64]int{}
	eachLine(x, func(l []byte) { counts[maphash.Bytes(seed, l)]++; removed++ })
	eachLine(y, func(l []byte) {
		if h := maphash.Bytes(seed, l); counts[h] > 0 {
			counts[h]--
			removed--
		} else {
			added++
		}
	})
	return added, removed
}

// eachLine calls do for each line, with its line end.
func eachLine(text []byte, do func([]byte)) {
	for len(text) > 0 {
		n := bytes.IndexByte(text, '\n') + 1
		if n == 0 {
			n = len(text)
		}
		do(text[:n])
		text = text[n:]
	}
}
