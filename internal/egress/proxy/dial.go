package proxy

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

func (b *Handler) dialUpstream(ctx context.Context, _, address string) (net.Conn, error) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(digits)
	if err != nil {
		return nil, err
	}
	// The transport may continue to dial after the end of its request, but not after the end of the
	// sandbox.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life.ctx, cancel)()
	return b.dial(ctx, host, port)
}

// dialTimeout limits an attempt to connect, including the resolution of the name.
const dialTimeout = 15 * time.Second

// dial connects to a name or, if the policy allows it, to an address. The current policy decides to
// which addresses the name may resolve.
func (b *Handler) dial(ctx context.Context, host string, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	p := b.current.Load().policy
	c := p.Connect(host, port)
	if c.Effect == egress.Deny {
		return nil, fault.New(fault.Denied, "denied", "the policy does not allow this connection")
	}
	d := *b.back.dialer
	if d.Resolver == nil {
		d.Resolver = names.System{}
	}
	d.Resolver = &guard{d.Resolver, p, port}
	d.DialAddress = b.dialAddress
	a, err := netip.ParseAddr(host)
	if err != nil {
		return d.Dial(ctx, host, port, c.Private)
	}
	if err := names.CheckAddress(a, c.Private, d.Own); err != nil {
		return nil, err
	}
	up, err := b.dialAddress(ctx, "tcp", netip.AddrPortFrom(a, uint16(port)).String())
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "upstream_unreachable", host+" cannot be reached")
	}
	return up, nil
}

func (b *Handler) dialAddress(ctx context.Context, network, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	dial := b.back.dialer.DialAddress
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	c, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &upstream{c, at}, nil
}

// upstream is a connection to a checked address.
type upstream struct {
	net.Conn
	at netip.AddrPort
}

// RemoteAddr returns the checked address.
func (u *upstream) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(u.at) }

// CloseWrite signals that no more data follows.
func (u *upstream) CloseWrite() error { return closeWrite(u.Conn) }

// guard rejects DNS answers with an address that the policy denies, because an allowed name must
// not lead there.
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

// refusedAddress passes a policy's decision about an address through the dialler.
type refusedAddress struct{ decision egress.Decision }

func (e *refusedAddress) Error() string { return e.decision.Reason }
