package proxy

import (
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// probes has the probes that the sandbox's first process is about to make, and how often it makes
// each. Entries are marked as probes that often and no more. A program of a restored sandbox may
// make one first, but cannot hide more requests than that.
type probes struct {
	mu   sync.Mutex
	left map[probe]int
}

type probe struct {
	kind egress.Kind
	host string
	port int
}

// expect starts expecting the probes of a policy.
func (l *probes) expect(p *policy.Policy) {
	want := p.Probes()
	left := map[probe]int{}
	for _, name := range append(want.Known, want.Unknown...) {
		left[probe{egress.KindDNS, name, 0}]++
	}
	for kind, list := range map[egress.Kind][][]string{
		egress.KindTCP: {want.Refused, want.Reached, want.Closed}, egress.KindPacket: {want.Dropped},
	} {
		for _, addresses := range list {
			for _, at := range addresses {
				host, text, err := net.SplitHostPort(at)
				port, bad := strconv.Atoi(text)
				if err == nil && bad == nil {
					left[probe{kind, host, port}]++
				}
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = left
}

// take reports whether an entry is about an expected probe, and counts it.
func (l *probes) take(r egress.Record) bool {
	host := r.Host
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := probe{r.Kind, host, r.Port}
	if r.Kind == egress.KindConnect {
		key.kind = egress.KindTCP // a sandbox without a network interface tries the same through the proxy
	}
	n, expected := l.left[key]
	switch {
	case !expected:
		return false
	case n > 1:
		l.left[key] = n - 1
	default:
		delete(l.left, key)
	}
	return true
}

// ExpectProbes announces that the sandbox's first process will probe the current policy.
func (b *Handler) ExpectProbes() { b.probes.expect(b.current.Load().policy) }
