package policy

import (
	"slices"
	"strings"
)

// glob is a pattern over segments between slashes. * matches any bytes within a segment. If it is
// the whole segment, it matches at least one byte. ** matches any number of segments, including
// none.
type glob struct {
	source   string
	segments []string
	// literal is the prefix that all matches share. It quickly excludes most patterns of a long
	// list.
	literal string
}

func newGlob(pattern string) *glob {
	rest := strings.TrimPrefix(pattern, "/")
	literal, stars, _ := strings.Cut(rest, "*")
	if strings.HasPrefix(stars, "*") {
		// /a/** also matches /a.
		literal = strings.TrimSuffix(literal, "/")
	}
	return &glob{pattern, strings.Split(rest, "/"), literal}
}

// Match reports whether a glob matches a name without escapes: a repository's path or a ref. There
// must be no second implementation of globs, because a rule and a binding with the same glob could
// then match different requests.
func Match(pattern, name string) bool { return newGlob(pattern).match(name, false) }

// MatchPath reports whether a glob matches the escaped path of a request, interpreted strictly, as
// for a rule that allows. It never matches a path that servers may interpret in more than one way.
func MatchPath(pattern, escaped string) bool {
	t, ok := readPath(escaped)
	return ok && newGlob(pattern).match(t.exact, false)
}

// begins reports whether a path, without the leading slash, begins with the literal prefix.
func (g *glob) begins(path string, fold bool) bool {
	if len(path) < len(g.literal) {
		return false
	}
	if fold {
		return strings.EqualFold(path[:len(g.literal)], g.literal)
	}
	return path[:len(g.literal)] == g.literal
}

// match reports whether the pattern matches the path. A sandbox controls the path, so match
// backtracks only to the last **, which limits its time to the product of both lengths.
func (g *glob) match(path string, fold bool) bool {
	path = strings.TrimPrefix(path, "/")
	if !g.begins(path, fold) {
		return false
	}
	i, pos := 0, 0 // the next segment of each; pos is past the end if none is left
	star, mark := -1, 0
	for {
		if i < len(g.segments) && g.segments[i] == "**" {
			star, mark = i, pos
			if i++; i == len(g.segments) {
				return true
			}
			continue
		}
		if pos > len(path) {
			return i == len(g.segments)
		}
		end := segmentEnd(path, pos)
		if i < len(g.segments) && segment(g.segments[i], path[pos:end], fold) {
			i, pos = i+1, end+1
			continue
		}
		if star < 0 {
			return false
		}
		mark = segmentEnd(path, mark) + 1
		i, pos = star+1, mark
	}
}

func segmentEnd(path string, from int) int {
	if n := strings.IndexByte(path[from:], '/'); n >= 0 {
		return from + n
	}
	return len(path)
}

// segment reports whether a pattern matches one segment. It backtracks only to the last star.
func segment(pattern, s string, fold bool) bool {
	if pattern == "*" {
		return s != ""
	}
	i, j := 0, 0
	star, mark := -1, 0
	for j < len(s) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, mark = i, j
			i++
		case i < len(pattern) && same(pattern[i], s[j], fold):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == '*' {
		i++
	}
	return i == len(pattern)
}

func same(a, b byte, fold bool) bool {
	return a == b || fold && lower(a) == lower(b)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// covers reports whether wide certainly matches everything that narrow matches. It may miss some
// cases.
func covers(wide, narrow string) bool {
	if disjoint(wide, narrow) {
		return false
	}
	w, n := newGlob(wide).segments, newGlob(narrow).segments
	for i, s := range w {
		if s == "**" && i == len(w)-1 {
			return true
		}
		if i >= len(n) {
			return false
		}
		switch {
		case s == n[i]:
		case s == "*" && n[i] != "**" && n[i] != "" && strings.Trim(n[i], "*") != "":
		case !strings.Contains(n[i], "*") && s != "**" && segment(s, n[i], false):
		default:
			return false
		}
	}
	return len(w) == len(n)
}

// disjoint reports whether two patterns differ before the first star of either, so that no path
// matches both. Every pair of rules in a block is compared, and most pairs are disjoint.
func disjoint(a, b string) bool {
	a, b = strings.TrimPrefix(a, "/"), strings.TrimPrefix(b, "/")
	for i := range min(len(a), len(b)) {
		if a[i] == '*' || b[i] == '*' {
			return false
		}
		if a[i] != b[i] {
			return true
		}
	}
	return false
}

// coversAll reports whether every path that narrow matches is certainly matched by wide. An empty
// list means all paths.
func coversAll(wide, narrow []string) bool {
	if len(wide) == 0 {
		return true
	}
	if len(narrow) == 0 {
		narrow = []string{"/**"}
	}
	for _, n := range narrow {
		if !slices.ContainsFunc(wide, func(w string) bool { return covers(w, n) }) {
			return false
		}
	}
	return true
}
