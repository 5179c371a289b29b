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

// generation is what one Update brought. It never changes.
type generation struct {
	policy  *policy.Policy
	secrets []*sealed
	// bound are the places that a secret may go to: TLS to them is opened.
	bound map[place]bool
	// masked are their hosts: on any port they may tell what they were told.
	masked    map[string]bool
	text      *redact.Redactor // for records and headers
	bytes     *redact.Redactor // for bodies, whose lengths stay
	transport *http.Transport
}

type place struct {
	host string
	port int
}

// generation compiles what an update brought. The upstream connections of the
// one before are kept if the policy is the same: with another, a connection
// may lead to an address that is no longer allowed.
func (b *Box) generation(p *policy.Policy, secrets []egress.Secret, before *generation) (*generation, error) {
	g := &generation{policy: p, bound: map[place]bool{}, masked: map[string]bool{}}
	var values []redact.Value
	for _, s := range secrets {
		one, err := seal(s, b.limits.Uses)
		if err != nil {
			return nil, err
		}
		// Two values for one header would make it chance which goes out.
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
		// Patterns are not looked for in bodies: what only looks like a token
		// may be a part of a file whose hash the program checks.
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

// newTransport makes the upstream side. No sandbox shares one: a connection that
// one sandbox opened carries nothing of another.
func (b *Box) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            b.dialUpstream,
		TLSClientConfig:        &tls.Config{RootCAs: b.roots, MinVersion: tls.VersionTLS12},
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
			// A server that is gone without a word is noticed.
			SendPingTimeout: 30 * time.Second,
			// What a sandbox asks for and does not read is held here. net/http's own
			// 4 MiB for each request would let one sandbox and a server that works
			// with it use up what all sandboxes share.
			MaxReceiveBufferPerStream: 512 << 10,
		},
	}
}
