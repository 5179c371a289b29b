package changeset

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// PathMatcher matches paths against a policy's protected paths, segment by segment. Paths with
// equal states match the same paths below them.
type PathMatcher interface {
	// Step returns the state after one more segment.
	Step(at, name string) string
	// Matches reports whether the path of a state is protected.
	Matches(at string) bool
}

// Limits for following links, because a sandbox can create any number of them.
const (
	maxHops    = 40  // links in a chain, as in a kernel
	maxPaths   = 256 // paths to one directory
	maxAliases = 256 // states of one path
)

// aliases finds the other paths by which symbolic links lead to a file: links in the host's
// directory, which the host's tools would follow, and links in the sandbox, which may be exported
// later. Without it, if .git/hooks is a link to ../hooks, a file in ../hooks would not count as
// protected.
type aliases struct {
	paths PathMatcher
	links map[string][]string        // by the real path of the target: "" is the top
	at    map[string]map[string]bool // states of the paths by which links lead to a directory
	known map[string][]string        // cache of the states of directories
	// lost are directories with more states than the limit. Everything below them counts as
	// protected.
	lost map[string]bool
}

// aliasesOf follows the links of both trees. start is the state of the top.
func (c *comparison) aliasesOf(paths PathMatcher, start string) *aliases {
	l := &aliases{paths: paths, links: map[string][]string{}, at: map[string]map[string]bool{"": {start: true}}, lost: map[string]bool{}}
	tops := []string{c.o.Dir}
	if c.base.Outside != nil {
		tops = append(tops, c.base.Outside.Name())
		if real, err := filepath.EvalSymlinks(c.base.Outside.Name()); err == nil {
			tops = append(tops, real)
		}
	}
	host := func(t *trio) *Entry { return t.host }
	now := func(t *trio) *Entry { return t.now }
	for name, t := range c.files {
		for _, view := range []func(*trio) *Entry{host, now} {
			if e := view(t); e == nil || e.Type != Link {
				continue
			}
			if to, ok := c.resolve(name, view, tops); ok && !slices.Contains(l.links[to], name) {
				l.links[to] = append(l.links[to], name)
			}
		}
	}
	for _, list := range l.links {
		slices.Sort(list) // a fixed order, so that the limits have the same effect each time
	}
	l.resolveAll()
	return l
}

// resolve returns the target of a link in one of the trees, if it is below the top.
func (c *comparison) resolve(name string, view func(*trio) *Entry, tops []string) (string, bool) {
	at, rest, links := "", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if at == "" {
				return "", false
			}
			if at = path.Dir(at); at == "." {
				at = ""
			}
			continue
		}
		next := path.Join(at, part)
		t := c.files[next]
		if t == nil || view(t) == nil || view(t).Type != Link {
			at = next
			continue
		}
		target := view(t).Target
		if links++; links > maxHops {
			return "", false
		}
		if path.IsAbs(target) {
			below, ok := belowTop(target, tops)
			if !ok {
				return "", false
			}
			at, target = "", below
		}
		rest = slices.Concat(strings.Split(target, "/"), rest)
	}
	return at, true
}

// belowTop returns the part of a link's target below one of the tops.
func belowTop(target string, tops []string) (string, bool) {
	for _, top := range tops {
		if rest, ok := strings.CutPrefix(target, top); ok && (rest == "" || rest[0] == '/') {
			return rest, true
		}
	}
	return "", false
}

// resolveAll finds all states by which links lead to their targets. Links may lead through other
// links, so it repeats until it finds nothing new.
func (l *aliases) resolveAll() {
	for again := true; again; {
		again = false
		l.known = map[string][]string{}
		for to, list := range l.links {
			for _, link := range list {
				for _, state := range l.statesOf(link) {
					switch {
					case l.at[to][state] || l.lost[to]:
						continue
					case len(l.at[to]) == maxPaths:
						l.lost[to] = true
					case l.at[to] == nil:
						l.at[to] = map[string]bool{state: true}
					default:
						l.at[to][state] = true
					}
					again = true
				}
			}
		}
	}
}

// states returns the states of a directory, by all paths to it.
func (l *aliases) states(dir string) []string {
	if found, ok := l.known[dir]; ok {
		return found
	}
	found := l.statesOf(dir)
	l.known[dir] = found
	return found
}

// statesOf returns the states of a path.
func (l *aliases) statesOf(name string) []string {
	var found []string
	if name != "" {
		for _, state := range l.states(dirOf(name)) {
			if next := l.paths.Step(state, path.Base(name)); !slices.Contains(found, next) {
				found = append(found, next)
			}
		}
	}
	for state := range l.at[name] {
		if !slices.Contains(found, state) {
			found = append(found, state)
		}
	}
	return found
}

// dirOf returns the directory of a path, "" for the top.
func dirOf(name string) string {
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		return name[:i]
	}
	return ""
}

// protected reports whether one of the paths to a file is protected.
func (l *aliases) protected(name string) bool {
	for above := name; len(l.lost) > 0; above = dirOf(above) {
		if l.lost[above] {
			return true
		}
		if above == "" {
			break
		}
	}
	return slices.ContainsFunc(l.statesOf(name), l.paths.Matches)
}

// aliases returns the other paths to a file, nearest first: all that go through one link, and a
// limited number that go through more.
func (l *aliases) aliases(name string) []string {
	if len(l.links) == 0 {
		return nil
	}
	var found []string
	seen := map[string]bool{name: true}
	for i, from := -1, name; ; from = found[i] {
		for above := from; ; above = dirOf(above) {
			for _, link := range l.links[above] {
				alias := link + from[len(above):]
				if above == "" {
					alias = link + "/" + from
				}
				if (i < 0 || len(found) < maxAliases) && !seen[alias] {
					seen[alias] = true
					found = append(found, alias)
				}
			}
			if above == "" {
				break
			}
		}
		if i++; i >= len(found) || i >= maxAliases {
			return found
		}
	}
}
