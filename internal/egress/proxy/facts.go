package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
)

// longestTarget limits the URL of a request that needs approval, because a longer one cannot be
// displayed.
const longestTarget = 8 << 10

// anything replaces the method if an approval covers more than one request.
const anything = "any"

// facts returns everything that an approval of this request is bound to: always the method, the
// whole URL and the digest of the body. It reads the body to its end.
func (x *exchange) facts() (map[string]string, *refusal) {
	target := x.origin() + x.action.path
	if q := x.r.URL.RawQuery; q != "" || x.r.URL.ForceQuery {
		target += "?" + q
	}
	if len(target) > longestTarget {
		return nil, floor(http.StatusRequestURITooLong, "too_large", policy.RuleLimit, "the URL is longer than what people can be asked about")
	}
	facts := map[string]string{
		"method": x.action.method, "host": x.dest.host, "port": strconv.Itoa(x.dest.port), "path": x.action.path, "tls": strconv.FormatBool(x.dest.tls),
		// Text that looks like a token is redacted for display, so the displayed text alone would
		// also match another token.
		"target": target, "target_sha256": hexHash(target),
	}
	if x.action.upgrade {
		facts["websocket"] = "true"
	}
	if stop := x.messageFacts(facts); stop != nil {
		return nil, stop
	}
	for _, s := range x.secrets {
		// A grant ends with the value of the secret for which it was given.
		facts["secret_"+s.Name] = "generation " + strconv.FormatInt(s.Generation, 10)
	}
	return facts, nil
}

// messageFacts adds the facts about headers and body.
func (x *exchange) messageFacts(facts map[string]string) *refusal {
	if x.action.push != nil && x.action.push.bound && !x.action.push.Probe() {
		// Git packs the same commits to different bytes each time. But the object IDs before the
		// pack determine its content and history.
		facts["body_sha256"] = hexHash(string(x.action.push.Head))
		facts["body"] = "the commands; the IDs in them bind the pack that follows"
		// The next try may use another compression.
		return x.headerFacts(facts, "Content-Encoding")
	}
	if stop := x.headerFacts(facts); stop != nil {
		return stop
	}
	if err := x.hold(); err != nil {
		return x.holdRefusal(err)
	}
	if x.action.body == nil {
		facts["body_sha256"], facts["body_bytes"] = hexHash(""), "0"
		return nil
	}
	facts["body_sha256"], facts["body_bytes"] = x.action.body.digest(), strconv.FormatInt(x.action.body.size, 10)
	return nil
}

// origin returns the request's destination, without its path.
func (x *exchange) origin() string {
	scheme, usual := "http", 80
	if x.dest.tls {
		scheme, usual = "https", 443
	}
	host := x.dest.host
	if x.dest.port != usual || strings.Contains(host, ":") {
		host = net.JoinHostPort(host, strconv.Itoa(x.dest.port))
	}
	return scheme + "://" + host
}

func hexHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
