package proxy

import (
	"crypto/tls"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
)

// generation is the result of one Update. It never changes.
type generation struct {
	policy  *policy.Policy
	secrets []*sealed
	// bound are the destinations of secrets: TLS to them is decrypted.
	bound map[place]bool
	// masked are their hosts: on any port they may send back what they received.
	masked    map[string]bool
	text      *redact.Redactor // for entries and headers
	bytes     *redact.Redactor // for bodies, whose lengths stay
	transport *http.Transport
}

type place struct {
	host string
	port int
}

// generation compiles the result of an update. It keeps the upstream connections of the previous
// one if the policy is the same: otherwise a connection may lead to an address that is not allowed
// any more.
func (b *Handler) generation(p *policy.Policy, secrets []egress.Secret, before *generation) (*generation, error) {
	g := &generation{policy: p, bound: map[place]bool{}, masked: map[string]bool{}}
	var values []redact.Value
	for _, s := range secrets {
		one, err := seal(s, b.limits.Uses)
		if err != nil {
			return nil, err
		}
		// With two values for one header it would be undefined which is sent.
		for _, other := range g.secrets {
			if other.clashes(one) {
				return nil, fault.Newf(fault.Invalid, "secret_binding_twice",
					"the secrets %s and %s are both bound to the header %s of %s", other.Name, one.Name, one.header, one.place.host)
			}
		}
		g.secrets = append(g.secrets, one)
		g.bound[one.place], g.masked[one.place.host] = true, true
		if s.Plain {
			continue
		}
		for _, v := range append([]string{s.Value}, s.Old...) {
			values = append(values, redact.Value{Name: s.Name, Data: []byte(v)})
		}
	}
	patterns := p.Document().Redact.Patterns
	var err error
	if len(values) > 0 || patterns != nil && *patterns {
		if g.text, err = redact.New(values, redact.Options{Patterns: patterns != nil && *patterns}); err != nil {
			return nil, err
		}
	}
	if len(values) > 0 {
		// Bodies are not searched for patterns: text that only looks like a token may be a part of
		// a file whose hash the program checks.
		if g.bytes, err = redact.New(values, redact.Options{SameLength: true}); err != nil {
			return nil, err
		}
	}
	if before != nil && before.policy.Digest() == p.Digest() {
		g.transport = before.transport
		return g, nil
	}
	g.transport = b.newTransport()
	return g, nil
}

// newTransport creates the upstream side. It is not shared between sandboxes: a connection that one
// sandbox opened carries nothing of another.
func (b *Handler) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            b.dialUpstream,
		TLSClientConfig:        &tls.Config{RootCAs: b.back.roots, MinVersion: tls.VersionTLS12},
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    b.limits.Handshake,
		ResponseHeaderTimeout:  b.limits.Answer,
		MaxResponseHeaderBytes: 256 << 10,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         16 << 10,
		HTTP2: &http.HTTP2Config{
			// A server that disappears silently is noticed.
			SendPingTimeout: 30 * time.Second,
			// Data that a sandbox requests and does not read is held here. With net/http's own 4
			// MiB for each request, one sandbox and a server that cooperates with it could use up
			// the memory that all sandboxes share.
			MaxReceiveBufferPerStream: 512 << 10,
		},
	}
}
