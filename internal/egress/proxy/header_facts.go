package proxy

import (
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
)

// harmless are the headers that may differ between the approved and the sent request: they change
// neither its effect nor its identity, and many differ in each try. A grant is bound to all other
// headers.
var harmless = []string{
	"Accept-Charset", "Accept-Encoding", "Accept-Language", "Amz-Sdk-Invocation-Id", "Amz-Sdk-Request", "B3", "Baggage", "Cache-Control",
	"Content-Length", "Date", "Dnt", "Expect", "Idempotency-Key", "Npm-Session", "Pragma", "Priority", "Sec-Ch-Ua", "Sec-Ch-Ua-Mobile",
	"Sec-Ch-Ua-Platform", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Sec-Websocket-Extensions",
	"Sec-Websocket-Key", "Sec-Websocket-Version", "Sentry-Trace", "Traceparent", "Tracestate", "Upgrade-Insecure-Requests", "User-Agent",
	"X-Amzn-Trace-Id", "X-B3-Parentspanid", "X-B3-Sampled", "X-B3-Spanid", "X-B3-Traceid", "X-Client-Request-Id",
	"X-Cloud-Trace-Context", "X-Correlation-Id", "X-Ms-Client-Request-Id", "X-Request-Id", "X-Stainless-Read-Timeout",
	"X-Stainless-Retry-Count", "X-Stainless-Timeout",
}

// credentials are parts of the names of headers whose values are not displayed.
var credentials = []string{"auth", "cookie", "cred", "jwt", "key", "otp", "passw", "secret", "session", "sign", "token"}

const (
	maxHeaders     = 40       // headers in an approval request
	maxHeadersSize = 12 << 10 // bytes of their displayed values
	maxNameLength  = 100
)

// headerFacts adds facts about all headers that are sent, except harmless ones. A fact is the
// header's value, or the digest of a credential. A request with more headers than can be displayed
// is refused, because an approval must not cover parts that the approver has not seen.
func (x *exchange) headerFacts(facts map[string]string, leaveOut ...string) *refusal {
	unseen := floor(http.StatusRequestHeaderFieldsTooLarge, "too_large", policy.RuleLimit, "the request has headers that people cannot be shown")
	h := x.r.Header.Clone()
	dropHops(h)
	var all []byte
	writeText := func(text string) {
		all = binary.BigEndian.AppendUint64(all, uint64(len(text)))
		all = append(all, text...)
	}
	count, size := 0, 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if slices.Contains(harmless, name) || slices.Contains(leaveOut, name) {
			continue
		}
		text := strings.Join(h[name], ", ")
		writeText(name)
		for _, v := range h[name] {
			writeText(v)
		}
		writeText("") // ends the values of this header
		fact := "header_" + strings.ToLower(name)
		if isCredential(name) {
			fact, text = fact+"_sha256", hexHash(text)
		}
		count, size = count+1, size+len(text)
		if count > maxHeaders || size > maxHeadersSize || len(name) > maxNameLength || !plainToken(name) {
			return unseen
		}
		facts[fact] = text
	}
	// Text that looks like a token is redacted for display, so the displayed values alone would
	// also match others.
	facts["headers_sha256"] = hexHash(string(all))
	return nil
}

func isCredential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(credentials, func(part string) bool { return strings.Contains(name, part) })
}

// plainToken reports whether a header's name has only characters that are valid in the name of a
// fact.
func plainToken(name string) bool {
	return strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}
