package git

import (
	"strings"

	"github.com/crannog/crannog/internal/host/text"
)

// longestRef exceeds what file systems and forges accept.
const longestRef = 1024

// isRef reports whether a ref is complete and valid by git's own rules (git-check-ref-format). A
// server may reject other refs, or interpret them as a different ref.
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

// printable reports whether a text can be displayed unchanged. Refs and options appear in approval
// requests, where control characters or changes of the writing direction could make a request look
// like another one.
func printable(s string) bool { return text.Printable(s) }
