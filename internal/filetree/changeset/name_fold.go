package changeset

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// fold returns one part of a path as the least strict file systems see it. They ignore case,
// composition of letters, invisible letters, dots and spaces at the end, and everything after a
// colon. Thus .GIT, .git. and .g‌it are .git.
func fold(part string) string {
	var b strings.Builder
	for _, r := range norm.NFKC.String(part) {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			continue
		}
		b.WriteRune(foldRune(r))
	}
	s, _, _ := strings.Cut(norm.NFKC.String(b.String()), ":")
	if t := strings.TrimRight(s, ". "); t != "" {
		return t
	}
	return s
}

// foldRune returns the same rune for all letters that differ only in case.
func foldRune(r rune) rune {
	least := r
	for x := unicode.SimpleFold(r); x != r; x = unicode.SimpleFold(x) {
		least = min(least, x)
	}
	return unicode.ToLower(least)
}

// foldPath folds each part. A backslash is a separator too, as on Windows.
func foldPath(name string) []string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' })
	for i := range parts {
		parts[i] = fold(parts[i])
	}
	return parts
}

// isName reports whether a folded part is a name, or its short form on file systems with short
// names: GIT~1 is .git.
func isName(part, name string) bool {
	if part == name {
		return true
	}
	short, number, ok := strings.Cut(part, "~")
	if !ok || number == "" || number[0] < '0' || number[0] > '9' {
		return false
	}
	base := strings.TrimLeft(name, ".")
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		base = base[:i]
	}
	base = strings.NewReplacer(".", "", " ", "").Replace(base)
	return short == base[:min(len(base), 6)]
}
