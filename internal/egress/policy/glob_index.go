package policy

import "strings"

// globIndex matches a path with many globs. Most globs name a file or a directory at any depth, so
// the elements of the path can be looked up in a map. This matters because a workspace has tens of
// thousands of files, and the levels have some eighty globs.
type globIndex struct {
	files, dirs map[string]bool // of **/file and **/dir/**, in lower case
	rest        []glob
}

func newGlobIndex(globs []glob) globIndex {
	s := globIndex{files: map[string]bool{}, dirs: map[string]bool{}}
	for _, g := range globs {
		if len(g.segments) < 2 || g.segments[0] != "**" || g.segments[1] == "**" || strings.Contains(g.segments[1], "*") {
			s.rest = append(s.rest, g)
			continue
		}
		switch name := lowered(g.segments[1]); {
		case len(g.segments) == 2:
			s.files[name] = true
		case len(g.segments) == 3 && g.segments[2] == "**":
			s.dirs[name] = true
		default:
			s.rest = append(s.rest, g)
		}
	}
	return s
}

func (s globIndex) match(path string) bool {
	for from := len(path) - len(strings.TrimPrefix(path, "/")); from <= len(path); {
		end := segmentEnd(path, from)
		name := lowered(path[from:end])
		if s.dirs[name] || end == len(path) && s.files[name] {
			return true
		}
		from = end + 1
	}
	for i := range s.rest {
		if s.rest[i].match(path, true) {
			return true
		}
	}
	return false
}

// lowered converts exactly those letters to lower case for which a glob ignores case.
func lowered(name string) string {
	for i := range len(name) {
		if lower(name[i]) != name[i] {
			folded := []byte(name)
			for j := i; j < len(folded); j++ {
				folded[j] = lower(folded[j])
			}
			return string(folded)
		}
	}
	return name
}
