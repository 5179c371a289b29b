package names

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// Resolver resolves names. host is canonical and has no final dot. An implementation must look it
// up as it is, without the search domains of the host's configuration.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// System is the host's resolver. It appends the final dot to each name, so that a sandbox that
// looks up "metadata" does not get "metadata.internal.example" through the host's search domains.
type System struct{}

// system always uses Go's own resolver. The C library's, which a cgo build may prefer, loads
// libraries that a confined process cannot open.
var system = net.Resolver{PreferGo: true}

// LookupNetIP resolves an absolute name with the host's resolver.
func (System) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return system.LookupNetIP(ctx, network, host+".")
}

const (
	// maxAddresses is how many of a name's addresses are tried. Large services have at most eight.
	maxAddresses = 8
	// dialTimeout is the timeout for one address, so that an unreachable first address leaves time
	// for the second.
	dialTimeout = 10 * time.Second
)

// Dialer opens connections to names. No other code turns a name into an address. Dialer dials
// exactly the checked address, so that a DNS server that answers differently the second time has no
// effect.
type Dialer struct {
	// Resolver is System if nil.
	Resolver Resolver
	// DialAddress is a plain net.Dialer if nil. The address is always an IP address with a port.
	DialAddress func(ctx context.Context, network, address string) (net.Conn, error)
	// Own lists the addresses of the machine and of the control plane's listeners, which no rule
	// can allow.
	Own []netip.Addr
}

// Dial connects to a port of a name. Every address of the answer must pass CheckAddress. Otherwise
// nothing is dialled: an answer with both public and private addresses is an attack or a mistake,
// and if Dial chose among them, the result would depend on their order. The error kinds are Invalid
// for the name or the port, Denied for an address, NotFound for an unknown name, and otherwise
// Unavailable or Timeout.
func (d *Dialer) Dial(ctx context.Context, host string, port int, allowed []netip.Prefix) (net.Conn, error) {
	host, err := Canonical(host)
	if err != nil {
		return nil, err
	}
	if port < 1 || port > 65535 {
		return nil, badPort("a port is not a number from 1 to 65535")
	}
	addresses, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, a := range addresses {
		addresses[i] = a.Unmap()
		if err := CheckAddress(a, allowed, d.Own); err != nil {
			return nil, err
		}
	}
	var failed error
	for _, a := range addresses[:min(len(addresses), maxAddresses)] {
		c, err := d.try(ctx, netip.AddrPortFrom(a, uint16(port)))
		if err == nil {
			return c, nil
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, fault.Wrap(failed, fault.Canceled, "upstream_canceled", "the connection was given up before "+host+" answered")
	}
	if slow, ok := errors.AsType[net.Error](failed); ok && slow.Timeout() {
		return nil, fault.Wrap(failed, fault.Timeout, "upstream_timeout", host+" does not answer")
	}
	return nil, fault.Wrap(failed, fault.Unavailable, "upstream_unreachable", host+" cannot be reached").
		WithHint("the policy allows this connection; the host refuses it or is down")
}

func (d *Dialer) try(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if d.DialAddress != nil {
		return d.DialAddress(ctx, "tcp", to.String())
	}
	var plain net.Dialer
	return plain.DialContext(ctx, "tcp", to.String())
}

func (d *Dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	var r Resolver = System{}
	if d.Resolver != nil {
		r = d.Resolver
	}
	addresses, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		if missing, ok := errors.AsType[*net.DNSError](err); ok && missing.IsNotFound {
			return nil, fault.Wrap(err, fault.NotFound, "name_unknown", "there is no host named "+host)
		}
		return nil, fault.Wrap(err, fault.Unavailable, "name_not_resolved", "the name "+host+" could not be looked up").
			WithHint("try again; if it lasts, check the name servers of the machine that runs Crannog")
	}
	if len(addresses) == 0 {
		return nil, fault.New(fault.NotFound, "name_unknown", "the host "+host+" has no address")
	}
	return append([]netip.Addr(nil), addresses...), nil
}
