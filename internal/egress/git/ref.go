package git

import (
	"strings"

	"github.com/crannog/crannog/internal/host/text"
)

// longestRef is more than file systems and forges accept.
const longestRef = 1024

// isRef reports whether a ref is a full one that is valid by git's own rules
// (git-check-ref-format). A server would reject others at best, and read them as another ref at
// worst.
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

// printable reports whether a text can be shown to a person unchanged: refs and options appear in
// approval requests, and one that moves the cursor or turns the direction of writing could make a
// request read as another.
func printable(s string) bool { return text.Printable(s) }
