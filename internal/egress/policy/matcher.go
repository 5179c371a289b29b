package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Matcher decides about many paths of the sandbox's file tree.
type Matcher struct {
	deny, protect, readOnly  []glob
	denied, protected, fixed globIndex
}

// Matcher compiles the globs.
func (f Files) Matcher() Matcher {
	compile := func(patterns []string) []glob {
		out := make([]glob, len(patterns))
		for i, p := range patterns {
			out[i] = *newGlob(p)
		}
		return out
	}
	m := Matcher{deny: compile(f.Deny), protect: compile(f.Protect), readOnly: compile(f.ReadOnly)}
	m.denied, m.protected, m.fixed = newGlobIndex(m.deny), newGlobIndex(slices.Concat(m.protect, m.readOnly)), newGlobIndex(m.readOnly)
	return m
}

// Denied reports whether a path is hidden from the sandbox. It ignores case, because on some file
// systems .ENV is .env.
func (m Matcher) Denied(path string) bool { return m.denied.match(path) }

// Protected reports whether changes of a path stay inside unless they are requested.
func (m Matcher) Protected(path string) bool { return m.protected.match(path) }

// ReadOnly reports whether a path is mounted read-only inside.
func (m Matcher) ReadOnly(path string) bool { return m.fixed.match(path) }

// Behind reports whether a file below a path could be denied or read-only because of the path
// itself, which may be that of a symbolic link. That is so if a pattern names a part of the path,
// and not only files below any directory. It also returns a key: paths with equal keys have the
// same denied and read-only files below them.
func (m Matcher) Behind(path string) (key string, could bool) {
	var b strings.Builder
	for _, globs := range [][]glob{m.deny, m.readOnly} {
		for i, g := range globs {
			// No pattern has matched a named segment yet at this point.
			start := g.open([]int{0})
			for _, at := range g.after(path) {
				could = could || at > start[len(start)-1]
				fmt.Fprintf(&b, "%d.%d ", i, at)
			}
		}
		b.WriteByte('/')
	}
	return b.String(), could
}

// after returns the indexes of the segments that may come next after the pattern has matched path.
func (g *glob) after(path string) []int {
	at := g.open([]int{0})
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		var next []int
		for _, i := range at {
			switch {
			case i == len(g.segments):
			case g.segments[i] == "**":
				next = append(next, i)
			case segment(g.segments[i], name, true):
				next = append(next, i+1)
			}
		}
		at = g.open(next)
	}
	return at
}

// open adds the index after each **, because a ** may match no segment.
func (g *glob) open(at []int) []int {
	for i := 0; i < len(at); i++ {
		if n := at[i]; n < len(g.segments) && g.segments[n] == "**" && !slices.Contains(at, n+1) {
			at = append(at, n+1)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}
