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
	// bound has the destinations of secrets. TLS to them is decrypted.
	bound map[location]bool
	// masked has their hosts, which may return a secret that they received on any port.
	masked    map[string]bool
	text      *redact.Redactor // for entries and headers
	bytes     *redact.Redactor // for bodies, whose lengths must not change
	transport *http.Transport
}

type location struct {
	host string
	port int
}

// generation compiles the policy and secrets of an update. It reuses the upstream connections of
// the previous generation only if the policy is the same, because they may lead to an address that
// is no longer allowed.
func (b *Handler) generation(p *policy.Policy, secrets []egress.Secret, before *generation) (*generation, error) {
	g := &generation{policy: p, bound: map[location]bool{}, masked: map[string]bool{}}
	var values []redact.Value
	for _, s := range secrets {
		binding, err := seal(s, b.limits.Uses)
		if err != nil {
			return nil, err
		}
		// With two values for one header it would be undefined which one is sent.
		for _, other := range g.secrets {
			if other.clashes(binding) {
				return nil, fault.Newf(fault.Invalid, "secret_binding_twice",
					"the secrets %s and %s are both bound to the header %s of %s", other.Name, binding.Name, binding.header, binding.location.host)
			}
		}
		g.secrets = append(g.secrets, binding)
		g.bound[binding.location], g.masked[binding.location.host] = true, true
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
		// Bodies are not searched for patterns, because text that only looks like a token may be
		// part of a file whose hash the program checks.
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

// newTransport creates the upstream side. It is not shared between sandboxes, so that a connection
// never carries data of two sandboxes.
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
			// Pings detect a server that disappears silently.
			SendPingTimeout: 30 * time.Second,
			// Data that a sandbox requests but does not read is buffered here. With net/http's
			// default of 4 MiB for each request, a sandbox and a cooperating server could use up
			// the memory of all sandboxes.
			MaxReceiveBufferPerStream: 512 << 10,
		},
	}
}
