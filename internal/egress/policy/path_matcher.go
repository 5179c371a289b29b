package policy

import (
	"slices"
	"strings"
)

// PathMatcher matches a path with the globs of a Matcher's protected files segment by
// segment, so that a directory that symbolic links lead to can be judged by each
// path that reaches it. A set of states stands for all paths with the same future:
// links that form a circle have endless paths, and few sets.
type PathMatcher struct{ globs []glob }

// MatchState is how far each glob is matched after some path. Paths with equal states are
// matched alike from there on.
type MatchState = string

// ProtectedPaths matches what Protected matches.
func (m Matcher) ProtectedPaths() PathMatcher {
	return PathMatcher{slices.Concat(m.protect, m.readOnly)}
}

// Start is the state after a path, which is absolute and clean.
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

// Step is the state one segment later.
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

// Matches reports whether a path that led to a state is matched.
func (w PathMatcher) Matches(at MatchState) bool {
	found := false
	w.each(at, func(g *glob, _ int, places []int) {
		found = found || places[len(places)-1] == len(g.segments)
	})
	return found
}

// each calls back with the places of each glob that is still alive.
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

// encode is a place in a glob. There are at most a few hundred globs of a few
// hundred segments.
func encode(glob, place int) MatchState {
	return string([]byte{byte(glob >> 8), byte(glob), byte(place >> 8), byte(place)})
}
