package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/names"
	"github.com/crannog/crannog/internal/causeway/policy"
	"github.com/crannog/crannog/internal/causeway/redact"
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
func (b *Box) generation(p *policy.Policy, secrets []causeway.Secret, before *generation) (*generation, error) {
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

// newTransport makes the upstream side. No box shares one: a connection that
// one box opened carries nothing of another.
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
	}
}

func (b *Box) dialUpstream(ctx context.Context, _, address string) (net.Conn, error) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(digits)
	if err != nil {
		return nil, err
	}
	// The transport goes on dialling when its request is gone, but not when
	// the box is.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	return b.dial(ctx, host, port)
}

// dialTime bounds an attempt to connect, the look-up included.
const dialTime = 15 * time.Second

// dial connects to a name or, where the policy lets one be reached, to an
// address. What the name may resolve to is what the policy says at this time.
func (b *Box) dial(ctx context.Context, host string, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	p := b.current.Load().policy
	c := p.Connect(host, port)
	if c.Effect == causeway.Deny {
		return nil, fault.New(fault.Denied, "denied", "the policy does not allow this connection")
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		d := *b.dialer
		if d.Resolver == nil {
			d.Resolver = names.System{}
		}
		d.Resolver = &guard{d.Resolver, p, port}
		return d.Dial(ctx, host, port, c.Private)
	}
	if err := names.CheckAddress(a, c.Private, b.dialer.Own); err != nil {
		return nil, err
	}
	to := netip.AddrPortFrom(a, uint16(port)).String()
	var up net.Conn
	if b.dialer.DialAddress != nil {
		up, err = b.dialer.DialAddress(ctx, "tcp", to)
	} else {
		up, err = new(net.Dialer).DialContext(ctx, "tcp", to)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "upstream_unreachable", host+" cannot be reached")
	}
	return up, nil
}

// guard refuses answers with an address that the policy denies: a name that
// is allowed must not lead there.
type guard struct {
	names.Resolver
	policy *policy.Policy
	port   int
}

func (r *guard) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	list, err := r.Resolver.LookupNetIP(ctx, network, host)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if d, refused := r.policy.Refuses(a, r.port); refused {
			return nil, &refusedAddress{d}
		}
	}
	return list, nil
}

// refusedAddress carries a policy's verdict on an address through the dialler.
type refusedAddress struct{ decision causeway.Decision }

func (e *refusedAddress) Error() string { return e.decision.Reason }
