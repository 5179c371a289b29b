package ingress

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// controlPaths are the first segments of the guest's private paths: those of the control service,
// and those that the E2B guest reserves for its host.
var controlPaths = map[string]bool{
	"_crannog": true,
	"init":     true, "freeze": true, "unfreeze": true, "collapse": true,
	"fsfreeze": true, "fsthaw": true, "upgrade": true,
}

// maxDecodings bounds how many times a path is decoded. A path that the last decoding still changes
// was written to deceive.
const maxDecodings = 4

// reserved reports whether any reader could parse a path as one of the guest's private paths: a
// reader that decodes once more, treats a backslash as a slash, removes dots and double slashes, or
// ignores case. The guest requires its control token too; this check stops
// attempts to guess the token before they reach the guest.
func reserved(u *url.URL) bool {
	p := u.Path
	for range maxDecodings {
		if first := firstSegment(p); controlPaths[first] || strings.HasPrefix(first, "_crannog") {
			return true
		}
		decoded, err := url.PathUnescape(p)
		if err != nil || decoded == p {
			return false
		}
		p = decoded
	}
	return true
}

// firstSegment returns the first segment of a path as the most lenient reader would parse it.
func firstSegment(p string) string {
	p = strings.Map(func(c rune) rune {
		switch {
		case c == '\\':
			return '/'
		case c <= ' ' || c == 0x7f:
			return -1
		}
		return c
	}, p)
	p = strings.ToLower(path.Clean("/" + p))
	first, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	name, _, _ := strings.Cut(first, ";")
	return name
}

// stripControl removes the header with the token of the guest's control service, in any spelling,
// so that no caller can try tokens from outside.
func stripControl(h http.Header) {
	for name := range h {
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), controlHeader) {
			delete(h, name)
		}
	}
}
