package policy

import (
	"slices"
	"strings"
)

// PathMatcher matches a path segment by segment with the globs of a Matcher's protected files. It
// is used for directories that can be reached by several paths through symbolic links. Cyclic links
// have infinitely many paths, but only few states: a state represents all paths whose continuations
// have the same matches.
type PathMatcher struct{ globs []glob }

// MatchState is the progress of each glob after some path. Paths with equal states have the same
// matches below them.
type MatchState = string

// ProtectedPaths returns a PathMatcher that gives the same answers as Protected.
func (m Matcher) ProtectedPaths() PathMatcher {
	return PathMatcher{slices.Concat(m.protect, m.readOnly)}
}

// Start returns the state after a path, which must be absolute and clean.
func (w PathMatcher) Start(path string) MatchState {
	var at MatchState
	for i := range w.globs {
		for _, n := range w.globs[i].open([]int{0}) {
			at += encode(i, n)
		}
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name != "" {
			at = w.Step(at, name)
		}
	}
	return at
}

// Step returns the state after one more segment.
func (w PathMatcher) Step(at MatchState, name string) MatchState {
	var next strings.Builder
	w.each(at, func(g *glob, i int, places []int) {
		var after []int
		for _, n := range places {
			switch {
			case n == len(g.segments):
			case g.segments[n] == "**":
				after = append(after, n)
			case segment(g.segments[n], name, true):
				after = append(after, n+1)
			}
		}
		for _, n := range g.open(after) {
			next.WriteString(encode(i, n))
		}
	})
	return next.String()
}

// Matches reports whether the path of a state matches.
func (w PathMatcher) Matches(at MatchState) bool {
	found := false
	w.each(at, func(g *glob, _ int, places []int) {
		found = found || places[len(places)-1] == len(g.segments)
	})
	return found
}

// each calls f with the positions in each glob from which matching can continue.
func (w PathMatcher) each(at MatchState, f func(g *glob, i int, places []int)) {
	for len(at) > 0 {
		i := int(at[0])<<8 | int(at[1])
		var places []int
		for len(at) > 0 && int(at[0])<<8|int(at[1]) == i {
			places = append(places, int(at[2])<<8|int(at[3]))
			at = at[4:]
		}
		f(&w.globs[i], i, places)
	}
}

// encode encodes a position in a glob. There are at most a few hundred globs of a few hundred
// segments.
func encode(glob, place int) MatchState {
	return string([]byte{byte(glob >> 8), byte(glob), byte(place >> 8), byte(place)})
}
