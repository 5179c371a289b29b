package proxy

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// sealed is a secret that is ready to be set on requests.
type sealed struct {
	egress.Secret
	location location
	header   string // canonical
	line     string // the header's value
	uses     int64
}

// framing headers define a message's end or destination. A secret there would redirect the request.
var framing = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Expect"}

func seal(s egress.Secret, uses int64) (*sealed, error) {
	wrong := func(text string) error {
		return fault.Newf(fault.Invalid, "secret_binding_invalid", "the binding of the secret %s: %s", printable(s.Name, 64), text)
	}
	host, err := names.Canonical(s.Host)
	if err != nil || host != s.Host {
		return nil, wrong("its host must be one exact name in lower case")
	}
	port := s.Port
	if port == 0 {
		port = 443
	}
	header := http.CanonicalHeaderKey(s.Header)
	line := s.Format
	switch {
	case s.Basic != "":
		if strings.Contains(s.Basic, ":") {
			return nil, wrong("a Basic user name must not have a colon")
		}
		header, line = "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(s.Basic+":"+s.Value))
	case line == "":
		line = s.Value
	case strings.Count(line, "{}") != 1:
		return nil, wrong("its format must hold {} once")
	default:
		line = strings.Replace(line, "{}", s.Value, 1)
	}
	switch {
	case s.Name == "" || s.Value == "":
		return nil, wrong("it has no name or no value")
	case port < 1 || port > 65535 || port == 80:
		return nil, wrong("its port must be one with TLS")
	case !httpguts.ValidHeaderFieldName(header) || slices.Contains(framing, header) || strings.HasPrefix(header, "Proxy-"):
		return nil, wrong("its header cannot carry a value")
	case !httpguts.ValidHeaderFieldValue(line):
		return nil, wrong("its value has characters that a header must not have")
	}
	if s.Uses > 0 {
		uses = s.Uses
	}
	return &sealed{Secret: s, location: location{host, port}, header: header, line: line, uses: uses}, nil
}

// clashes reports whether two secrets could be set on one header of the same request.
func (s *sealed) clashes(o *sealed) bool {
	if s.location != o.location || s.header != o.header {
		return false
	}
	methods := len(s.Methods) == 0 || len(o.Methods) == 0 || slices.ContainsFunc(s.Methods, func(m string) bool { return slices.Contains(o.Methods, m) })
	// Whether two different globs overlap is hard to decide, so only equal globs, or a side without
	// globs, count as overlapping.
	paths := len(s.Paths) == 0 || len(o.Paths) == 0 || slices.ContainsFunc(s.Paths, func(p string) bool { return slices.Contains(o.Paths, p) })
	return methods && paths
}

// fits reports whether the secret belongs on a request. Globs match like those of a rule that
// allows.
func (s *sealed) fits(host string, port int, method, path string) bool {
	return s.location == location{host, port} &&
		(len(s.Methods) == 0 || slices.Contains(s.Methods, method)) &&
		(len(s.Paths) == 0 || slices.ContainsFunc(s.Paths, func(glob string) bool { return policy.MatchPath(glob, path) }))
}

// choose selects the secrets for a request. It refuses the request if one of them cannot be used
// any more, because without it the request would be a different one.
func (x *exchange) choose() *refusal {
	x.secrets = nil
	if !x.dest.tls {
		return nil // never without verified TLS
	}
	for _, s := range x.gen.secrets {
		// A server that interprets the request differently must not receive the secret.
		if slices.ContainsFunc(x.action.readings, func(r reading) bool { return !s.fits(x.dest.host, x.dest.port, r.method, r.path) }) {
			continue
		}
		if !s.Expires.IsZero() && !time.Now().Before(s.Expires) {
			return secretRefusal(s, "secret_expired", "its lifetime is over")
		}
		if x.handler.used(s) >= s.uses {
			return secretRefusal(s, "secret_spent", "it has been used as often as allowed")
		}
		if slices.ContainsFunc(x.secrets, func(o *sealed) bool { return o.header == s.header }) {
			return secretRefusal(s, "secret_binding_twice", "another one is bound to the same header")
		}
		x.secrets = append(x.secrets, s)
	}
	return nil
}

func secretRefusal(s *sealed, code, why string) *refusal {
	return &refusal{status: http.StatusForbidden, code: code, decision: egress.Decision{
		Effect: egress.Deny, Rule: "secret:" + s.Name, Layer: "task",
		Reason: "the secret " + s.Name + " belongs on this request, and " + why,
		Fix:    "crannog secret set " + s.Name,
	}}
}

func (b *Handler) used(s *sealed) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.uses.spent[s.Name]
}

// inject sets the secrets on the headers of a request that is sent next, and counts their use.
func (x *exchange) inject(h http.Header) *refusal {
	x.handler.mu.Lock()
	defer x.handler.mu.Unlock()
	for _, s := range x.secrets {
		// Count under the lock, so that of two requests with one use left only one is sent.
		if x.handler.uses.spent[s.Name] >= s.uses {
			return secretRefusal(s, "secret_spent", "it has been used as often as allowed")
		}
	}
	for _, s := range x.secrets {
		x.handler.uses.spent[s.Name]++
		h[s.header] = []string{s.line} // replaces what the sandbox sent
		x.record.Secrets = append(x.record.Secrets, s.Name)
	}
	return nil
}
