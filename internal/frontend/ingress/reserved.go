package ingress

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// controlPaths are the first segments of the guest's private paths: those of
// our own control service, and those that the E2B guest keeps for its host.
var controlPaths = map[string]bool{
	"_crannog": true,
	"init":     true, "freeze": true, "unfreeze": true, "collapse": true,
	"fsfreeze": true, "fsthaw": true, "upgrade": true,
}

// maxDecodings bounds how often a path is decoded. What is still escaped
// then was written to deceive.
const maxDecodings = 4

// reserved reports whether a path could mean one of the guest's private ones to
// any reader: one that decodes once more, that takes a backslash for a
// slash, that cleans dots and double slashes, or that ignores case. The
// guest asks for its control token besides; this keeps guesses from getting
// as far.
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

// firstSegment returns the first segment of a path as its most lenient
// reader sees it.
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

// stripControl removes the header that opens the guest's control service,
// however it is spelled, so that no caller can try a token from outside.
func stripControl(h http.Header) {
	for name := range h {
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), controlHeader) {
			delete(h, name)
		}
	}
}
