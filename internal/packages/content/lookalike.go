package content

import (
	"strings"

	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/packages"
)

// minLength is the length from which names are compared. Too many shorter ones are near each other.
const minLength = 5

// NearName returns the finding for a package whose name is nearly that of a popular package, or of
// one in known, which are names of the package's ecosystem. It returns nil for a package that is
// itself popular or known.
func NearName(a packages.Artifact, known []string) *Finding {
	own := folded(a)
	if len(own) < minLength {
		return nil
	}
	var other string
	for _, list := range [][]string{popular[a.Ecosystem], known} {
		for _, name := range list {
			if same(a.Ecosystem, name, a.Name) {
				return nil
			}
			if d := len(name) - len(a.Name); other != "" || d > maxSuffix+1 || d < -maxSuffix-1 {
				continue
			}
			if n := folded(packages.Artifact{Ecosystem: a.Ecosystem, Name: name}); len(n) >= minLength && near(own, n) && !sameOwner(own, n) {
				other = name
			}
		}
	}
	if other == "" {
		return nil
	}
	i := &inspection{found: map[Code]*Finding{}}
	i.add(LookAlike, a.Name, "looks like "+text.ASCII(other, maxPath))
	return i.found[LookAlike]
}

// same reports whether two names are of one package.
func same(e packages.Ecosystem, a, b string) bool {
	if e != packages.PyPI && e != packages.Crates {
		return a == b
	}
	x, y := folded(packages.Artifact{Ecosystem: e, Name: a}), folded(packages.Artifact{Ecosystem: e, Name: b})
	return x == y
}

// maxSuffix is the length of the longest suffix of a major version.
const maxSuffix = 6

// folded returns a name without differences that people overlook: the case of letters, and which
// separator there is. The major version of a Go module is no part of the name.
func folded(a packages.Artifact) string {
	s := strings.ToLower(a.Name)
	if a.Ecosystem == packages.Go {
		if at := strings.LastIndexAny(s, "/."); at > 0 && strings.HasPrefix(s[at+1:], "v") && len(s)-at <= maxSuffix &&
			at+2 < len(s) && strings.Trim(s[at+2:], "0123456789") == "" {
			s = s[:at]
		}
	}
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '.' {
			return '-'
		}
		return r
	}, s)
}

// sameOwner reports whether only who owns both names could have chosen them: names with one scope
// of npm, one group of Maven, or one path up to the last element.
func sameOwner(a, b string) bool {
	x, y := strings.LastIndexAny(a, "/:"), strings.LastIndexAny(b, "/:")
	return x > 0 && y > 0 && a[:x] == b[:y]
}

// near reports whether one insertion, deletion, substitution or transposition of neighbours, or
// nothing, makes a to b.
func near(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 {
		return false
	}
	n := 0
	for n < len(a) && a[n] == b[n] {
		n++
	}
	if len(a) < len(b) {
		return a[n:] == b[n+1:]
	}
	if n == len(a) || a[n+1:] == b[n+1:] {
		return true
	}
	return n+1 < len(a) && a[n] == b[n+1] && a[n+1] == b[n] && a[n+2:] == b[n+2:]
}
