package toolfiles

import (
	"path"
	"slices"
	"strings"
)

// Matching returns a function that reports whether entries match a slash-separated path. A
// directory matches if the files in it match.
func Matching(entries []Entry) func(name string) bool {
	files, dirs := map[string][]string{}, map[string][]string{} // by the last part of their names
	var suffixes, prefixes []string
	for _, e := range entries {
		kind, text := e.Form()
		switch kind {
		case File:
			files[path.Base(text)] = append(files[path.Base(text)], text)
		case Dir:
			dirs[path.Base(text)] = append(dirs[path.Base(text)], text)
		case Suffix:
			suffixes = append(suffixes, text)
		case Prefix:
			prefixes = append(prefixes, text)
		}
	}
	return func(name string) bool {
		name = "/" + strings.ToLower(strings.TrimPrefix(name, "/"))
		base := path.Base(name)
		hasSuffix := func(list []string, name string) bool {
			return slices.ContainsFunc(list, func(text string) bool { return strings.HasSuffix(name, "/"+text) })
		}
		if hasSuffix(files[base], name) ||
			slices.ContainsFunc(suffixes, func(text string) bool { return strings.HasSuffix(base, text) }) ||
			slices.ContainsFunc(prefixes, func(text string) bool { return strings.HasPrefix(base, text) }) {
			return true
		}
		for dir := name; len(dir) > 1; dir = path.Dir(dir) {
			if hasSuffix(dirs[path.Base(dir)], dir) {
				return true
			}
		}
		return false
	}
}
