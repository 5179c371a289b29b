package changeset

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/crannog/crannog/internal/filetree/toolfiles"
)

// catalogueIndex is an index of the catalogue of files that tools execute. The keys of files and
// dirs are the last parts of names, and the values the parts above them.
type catalogueIndex struct {
	files, dirs        map[string][]parentParts
	names              []string // the keys of both
	suffixes, prefixes []string
}

// parentParts are the parts of a path above its last one.
type parentParts []string

// catalogue returns the index. It is built once.
var catalogue = sync.OnceValue(func() catalogueIndex {
	g := catalogueIndex{files: map[string][]parentParts{}, dirs: map[string][]parentParts{}}
	for _, e := range toolfiles.Runs() {
		kind, text := e.Form()
		parts := strings.Split(text, "/")
		last := parts[len(parts)-1]
		switch kind {
		case toolfiles.File:
			g.files[last] = append(g.files[last], parts[:len(parts)-1])
		case toolfiles.Dir:
			g.dirs[last] = append(g.dirs[last], parts[:len(parts)-1])
		case toolfiles.Suffix:
			g.suffixes = append(g.suffixes, text)
		case toolfiles.Prefix:
			g.prefixes = append(g.prefixes, text)
		}
	}
	g.names = slices.Sorted(maps.Keys(g.files))
	g.names = append(g.names, slices.Sorted(maps.Keys(g.dirs))...)
	return g
})

// namesFor returns the names in the catalogue that a part of a path may stand for: its own name
// and, on file systems with short names, names that it may abbreviate.
func (g *catalogueIndex) namesFor(part string) []string {
	all := []string{part}
	if strings.Contains(part, "~") {
		for _, name := range g.names {
			if isName(part, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// matches reports whether the directories above a name match those in the catalogue.
func (above parentParts) matches(parts []string) bool {
	return len(above) <= len(parts) && slices.EqualFunc(parts[len(parts)-len(above):], above, isName)
}

// runsByItself reports whether tools of the host would execute a file, or a file to which it
// refers, without being asked. e is the file's present or earlier entry.
func runsByItself(name string, e *Entry) bool {
	g, parts := catalogue(), foldPath(name)
	for i, part := range parts {
		if isName(part, ".git") {
			if gitRuns(parts[i+1:], e) {
				return true
			}
			continue
		}
		if g.runs(parts[:i], part, parts[i+1:], e) {
			return true
		}
	}
	return false
}

// runs is runsByItself for one part of a path, with the parts above and below it.
func (g *catalogueIndex) runs(above []string, part string, rest []string, e *Entry) bool {
	last := len(rest) == 0
	matchesAbove := func(a parentParts) bool { return a.matches(above) }
	for _, name := range g.namesFor(part) {
		switch {
		case slices.ContainsFunc(g.dirs[name], matchesAbove) && (!last || e.Type != Dir):
			return true
		case last && e.Type != Dir && slices.ContainsFunc(g.files[name], matchesAbove):
			return true
		}
	}
	if !last || e.Type == Dir {
		return false
	}
	return slices.ContainsFunc(g.suffixes, func(s string) bool { return strings.HasSuffix(part, s) }) ||
		slices.ContainsFunc(g.prefixes, func(s string) bool { return strings.HasPrefix(part, s) }) ||
		e.Type == Link && g.linksToCatalogue(append(slices.Clone(above), part))
}

// linksToCatalogue reports whether a link is at the path of a directory whose files tools of the
// host execute, such as .github or .cargo. All files in the link's target are then at such paths.
func (g *catalogueIndex) linksToCatalogue(parts []string) bool {
	for _, all := range []map[string][]parentParts{g.files, g.dirs} {
		for _, names := range all {
			for _, above := range names {
				for n := 1; n <= len(above); n++ {
					if above[:n].matches(parts) {
						return true
					}
				}
			}
		}
	}
	return false
}

// gitRuns reports whether Git would execute a file below a .git, or commands in this file.
func gitRuns(rest []string, e *Entry) bool {
	if len(rest) == 0 {
		return e.Type != Dir // it refers to another repository
	}
	for i, part := range rest {
		switch {
		case isName(part, "hooks"), isName(part, "rebase-merge"), isName(part, "rebase-apply"):
			return true
		case i < len(rest)-1:
		case isName(part, "config"), isName(part, "config.worktree"), isName(part, "attributes"), isName(part, "commondir"), isName(part, "gitdir"):
			return true
		}
	}
	return e.Type == Link
}

// inBareRepository reports whether Git would execute a file, or use its settings, because its
// directory is a repository that is not called .git.
func inBareRepository(name string, has func(path string) bool) bool {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		switch fold(part) {
		case "hooks", "config", "head", "commondir":
		default:
			continue
		}
		above := strings.Join(parts[:i], "/")
		if above != "" {
			above += "/"
		}
		if has(above+"HEAD") && (has(above+"objects") || has(above+"commondir")) {
			return true
		}
	}
	return false
}

// lifecycle lists the scripts that a package manager runs when the package, or one that depends on
// it, is installed or packed.
var lifecycle = []string{
	"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare", "prepublishonly", "prepack", "postpack", "dependencies",
}

// sameScripts reports whether the scripts that a package manager runs automatically are unchanged.
// Unreadable content counts as changed.
func sameScripts(x, y []byte) bool {
	before, ok1 := scripts(x)
	after, ok2 := scripts(y)
	return ok1 && ok2 && maps.EqualFunc(before, after, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}

// scripts returns the automatic scripts of a package.json by name. It returns false for invalid
// JSON.
func scripts(text []byte) (map[string]json.RawMessage, bool) {
	var p map[string]json.RawMessage
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, true
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, false
	}
	all := map[string]json.RawMessage{}
	if p["gypfile"] != nil {
		all["gypfile"] = p["gypfile"]
	}
	var s map[string]json.RawMessage
	if p["scripts"] != nil && json.Unmarshal(p["scripts"], &s) != nil {
		return nil, false
	}
	for name, command := range s {
		if slices.Contains(lifecycle, strings.ToLower(name)) {
			all[name] = command
		}
	}
	return all, true
}
