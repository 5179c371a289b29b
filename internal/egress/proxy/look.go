package proxy

import (
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// looks are the probes that the sandbox's first process is about to make, and how many. Each is
// marked that often and no more: a program of a sandbox that continues from a saved state may make
// one first, but cannot hide more requests than it takes marks.
type looks struct {
	mu   sync.Mutex
	left map[look]int
}

type look struct {
	kind egress.Kind
	host string
	port int
}

// expect starts to wait for the probes of a policy.
func (l *looks) expect(p *policy.Policy) {
	want := p.Look()
	left := map[look]int{}
	for _, name := range append(want.Known, want.Unknown...) {
		left[look{egress.KindDNS, name, 0}]++
	}
	for kind, list := range map[egress.Kind][][]string{
		egress.KindTCP: {want.Refused, want.Reached, want.Closed}, egress.KindPacket: {want.Dropped},
	} {
		for _, addresses := range list {
			for _, at := range addresses {
				host, text, err := net.SplitHostPort(at)
				port, bad := strconv.Atoi(text)
				if err == nil && bad == nil {
					left[look{kind, host, port}]++
				}
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = left
}

// take reports whether an entry is about such a probe, and counts it.
func (l *looks) take(r egress.Record) bool {
	host := r.Host
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := look{r.Kind, host, r.Port}
	n, waited := l.left[key]
	switch {
	case !waited:
		return false
	case n > 1:
		l.left[key] = n - 1
	default:
		delete(l.left, key)
	}
	return true
}

// Look announces that the sandbox is not ready yet: its first process will probe the present
// policy.
func (b *Box) Look() { b.looks.expect(b.current.Load().policy) }
