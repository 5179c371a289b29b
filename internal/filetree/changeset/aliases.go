package changeset

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// PathMatcher matches a path with what a policy protects, segment by segment. Paths with
// equal states are matched alike from there on.
type PathMatcher interface {
	// Step is the state after one more segment.
	Step(at, name string) string
	// Matches reports whether the path of a state is protected.
	Matches(at string) bool
}

// Bounds of what is followed. A sandbox can make any number of links.
const (
	maxHops    = 40  // of links behind each other, as in a kernel
	maxPaths   = 256 // to one directory
	maxAliases = 256 // of one path
)

// aliases knows by which paths symbolic links lead to a place: those of the host's
// directory, by which its tools would come there, and those inside, which may come
// out later. Without it a file in ../hooks would come out though .git/hooks is a
// link there.
type aliases struct {
	paths PathMatcher
	links map[string][]string        // by where they lead, for real: "" is the top
	at    map[string]map[string]bool // states by which links lead to a place
	known map[string][]string        // states of directories
	// lost are places with more states than are followed: all below is protected.
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
		slices.Sort(list) // what is bounded is so alike each time
	}
	l.settle()
	return l
}

// resolve finds where a link leads in one of both trees, if that is below the top.
func (c *comparison) resolve(name string, view func(*trio) *Entry, tops []string) (string, bool) {
	at, rest, hops := "", strings.Split(name, "/"), 0
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
		if hops++; hops > maxHops {
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

func belowTop(target string, tops []string) (string, bool) {
	for _, top := range tops {
		if rest, ok := strings.CutPrefix(target, top); ok && (rest == "" || rest[0] == '/') {
			return rest, true
		}
	}
	return "", false
}

// settle finds all states by which links lead to their places. Links may lead over
// others, so it is done until nothing is new.
func (l *aliases) settle() {
	for again := true; again; {
		again = false
		l.known = map[string][]string{}
		for to, list := range l.links {
			for _, link := range list {
				for _, state := range l.after(link) {
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

// states are those of a directory, by all paths to it.
func (l *aliases) states(dir string) []string {
	if found, ok := l.known[dir]; ok {
		return found
	}
	found := l.after(dir)
	l.known[dir] = found
	return found
}

// after are the states of a path.
func (l *aliases) after(name string) []string {
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

func dirOf(name string) string {
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		return name[:i]
	}
	return ""
}

// protected reports whether one of the paths to a place is protected.
func (l *aliases) protected(name string) bool {
	for above := name; len(l.lost) > 0; above = dirOf(above) {
		if l.lost[above] {
			return true
		}
		if above == "" {
			break
		}
	}
	return slices.ContainsFunc(l.after(name), l.paths.Matches)
}

// aliases are other paths to a place, the nearest first: all that take one link,
// and as many as are bounded that take more.
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
