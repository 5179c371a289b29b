package sandbox

import "strings"

// GitDir is the name of a repository in its work tree. Changes in a shared repository outside of
// the workspace are listed under this name too.
const GitDir = ".git"

// Overlap reports whether two paths are equal, or one is below the other.
func Overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// HiddenBelow returns a function that returns the hidden path which a file equals or is below, or
// "" if the file is not hidden.
func HiddenBelow(hidden []string) func(name string) string {
	set := make(map[string]bool, len(hidden))
	for _, h := range hidden {
		set[h] = true
	}
	return func(name string) string {
		for end := len(name); end > 0; end = strings.LastIndexByte(name[:end], '/') {
			if set[name[:end]] {
				return name[:end]
			}
		}
		return ""
	}
}
