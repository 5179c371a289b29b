package git

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// longestRef is more than file systems and forges take.
const longestRef = 1024

// isRef says whether a ref is a full one that git's own rules take
// (git-check-ref-format). Others would be refused by the server at best, and
// read as another ref at worst.
func isRef(ref string) bool {
	if !strings.HasPrefix(ref, "refs/") || len(ref) > longestRef || !printable(ref) {
		return false
	}
	if strings.ContainsAny(ref, " ~^:?*[\\") || strings.Contains(ref, "..") || strings.Contains(ref, "@{") || strings.HasSuffix(ref, ".") {
		return false
	}
	segments := strings.Split(ref, "/")
	if len(segments) < 3 {
		return false
	}
	for _, s := range segments {
		if s == "" || strings.HasPrefix(s, ".") || strings.HasSuffix(s, ".lock") {
			return false
		}
	}
	return true
}

// printable says whether a text can be shown to a person as it is: refs and
// options stand in questions, and one that moves the cursor or turns the
// direction of writing could make a question read as another.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// cover says whether a glob covers a ref: * stands for any letters of one
// segment, ** as a segment for any number of segments.
func cover(glob, ref string) bool {
	return coverSegments(strings.Split(glob, "/"), strings.Split(ref, "/"))
}

// coverSegments goes back to the last ** only, so that the time is bounded by
// the product of both lengths.
func coverSegments(glob, ref []string) bool {
	i, j, star, mark := 0, 0, -1, 0
	for j < len(ref) || i < len(glob) {
		switch {
		case i < len(glob) && glob[i] == "**":
			star, mark = i, j
			i++
		case i < len(glob) && j < len(ref) && coverSegment(glob[i], ref[j]):
			i++
			j++
		case star >= 0 && mark < len(ref):
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	return true
}

func coverSegment(glob, s string) bool {
	parts := strings.Split(glob, "*")
	if len(parts) == 1 {
		return glob == s
	}
	rest, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		if _, rest, ok = strings.Cut(rest, p); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
