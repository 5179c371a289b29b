package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
)

// Redaction does not recognise a secret that arrives in parts, in several responses. So a host that
// may know a secret never gets a request for a part of a response, on any path, and partial
// responses from it are not forwarded.

// plainName returns the name of a header in a form that does not depend on the server: many servers
// treat _ as -.
func plainName(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// dropRanges removes the headers that request a part of a response. With them, a sandbox could read
// a secret that a server has stored, a few bytes at a time.
func (x *exchange) dropRanges(h http.Header) *refusal {
	// With a POST, the body often selects what is read. With a PUT or PATCH, it selects where to
	// write.
	reads := slices.ContainsFunc(x.action.readings, func(r reading) bool {
		return r.method == http.MethodGet || r.method == http.MethodHead || r.method == http.MethodPost
	})
	for name := range queryHeaders(x.r.URL.RawQuery) {
		if plain := plainName(name); plain == "a-im" || strings.Contains(plain, "range") {
			return floor(http.StatusForbidden, "range", policy.RuleProtocol, "a query for a part of a response is not passed on where a secret must be redacted")
		}
	}
	for name := range h {
		plain := plainName(name)
		words := strings.Split(plain, "-")
		switch {
		case plain == "range", plain == "if-range", plain == "request-range", plain == "a-im":
			delete(h, name)
		case !slices.ContainsFunc(words, isRange), plain == "content-range":
		case slices.Contains(words, "source"):
			// A copy of a part could later be read as a whole.
			return floor(http.StatusForbidden, "range", policy.RuleProtocol, "a copy of a part is not passed on where a secret must be redacted")
		case reads:
			delete(h, name)
		}
	}
	return nil
}

// isRange reports whether a word in a header's name means a range.
func isRange(word string) bool {
	switch word {
	case "range", "ranges", "byterange", "byteranges":
		return true
	}
	return false
}

// refusePiece refuses a partial response although none was requested. Rows of a table are numbered
// without a unit, and are not byte ranges.
func refusePiece(resp *http.Response) *refusal {
	unit := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Range")))
	kind := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Type")))
	bytes := strings.HasPrefix(unit, "bytes") && resp.StatusCode < http.StatusMultipleChoices
	if !bytes && !strings.HasPrefix(kind, "multipart/byteranges") && resp.StatusCode != http.StatusIMUsed &&
		(resp.StatusCode != http.StatusPartialContent || unit != "") {
		return nil
	}
	return floor(http.StatusBadGateway, "upstream_range", policy.RuleProtocol,
		"the response is a part of a whole, in which a secret could not be redacted, although none was requested")
}
