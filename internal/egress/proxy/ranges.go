package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
)

// Piece by piece, no mask recognises a secret. So of a host that may know one,
// on any path, nothing is asked for in pieces, and no piece is passed on.

// plainName is the name of a header as the strictest and the loosest server have
// it: many take _ for -.
func plainName(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// dropRanges removes the headers that ask for a piece of an answer. With them, a
// sandbox read out a secret that a server had kept, ten bytes at a time.
func (x *exchange) dropRanges(h http.Header) *refusal {
	// With a POST, what is read is often asked for in a body; where a write goes, a PUT or PATCH says.
	reads := slices.ContainsFunc(x.readings, func(r reading) bool {
		return r.method == http.MethodGet || r.method == http.MethodHead || r.method == http.MethodPost
	})
	for name := range queryHeaders(x.r.URL.RawQuery) {
		if plain := plainName(name); plain == "a-im" || strings.Contains(plain, "range") {
			return floor(http.StatusForbidden, "range", policy.RuleProtocol, "a query that asks for a piece is not passed on where a secret must be masked")
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
			// What is copied from a piece can be read as a whole.
			return floor(http.StatusForbidden, "range", policy.RuleProtocol, "a copy of a piece is not passed on where a secret must be masked")
		case reads:
			delete(h, name)
		}
	}
	return nil
}

// isRange reports whether a word of a header's name speaks of a piece.
func isRange(word string) bool {
	switch word {
	case "range", "ranges", "byterange", "byteranges":
		return true
	}
	return false
}

// refusePiece refuses an answer that is a piece although none was asked for. Rows
// of a table are numbered without a unit, and are no pieces of bytes.
func refusePiece(resp *http.Response) *refusal {
	unit := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Range")))
	kind := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Type")))
	bytes := strings.HasPrefix(unit, "bytes") && resp.StatusCode < http.StatusMultipleChoices
	if !bytes && !strings.HasPrefix(kind, "multipart/byteranges") && resp.StatusCode != http.StatusIMUsed &&
		(resp.StatusCode != http.StatusPartialContent || unit != "") {
		return nil
	}
	return floor(http.StatusBadGateway, "upstream_range", policy.RuleProtocol,
		"the answer is a piece of a whole, in which a secret could not be masked, though none was asked for")
}
