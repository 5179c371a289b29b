package policy

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
)

// Addresses and a name that no sandbox can ever reach, whatever its policy: the metadata service of
// most clouds, an address reserved for documentation, and a name that never exists.
const (
	MetadataAddress = "169.254.169.254:80"
	UnusedDatagram  = "192.0.2.1:9"
	UnusedName      = "crannog-probe.invalid"
)

// Probes lists the connections that a sandbox's first process tries before the sandbox is ready.
// The gateway recognises the probes by this list. Hosts and ports are in the form host:port.
type Probes struct {
	Refused []string // addresses to which no connection may succeed
	Dropped []string // addresses that no datagram may reach
	Unknown []string // names that must have no address
	Known   []string // names that must have one
	Reached []string // ports of known names to which a connection must succeed
	Closed  []string // ports of known names to which no connection may succeed
}

// closedPorts are ports that policies do not allow by accident. One of them is enough.
var closedPorts = []int{9, 1, 7}

// Probes selects samples of the policy: an allowed host, a denied one, and a denied port of the
// first. No outside host notices the probes: the gateway dials a connection only after its first
// byte, and a probe sends none. A tunnel is dialled at once, so the probe only looks up its host.
func (p *Policy) Probes() Probes {
	l := Probes{Refused: []string{MetadataAddress}, Dropped: []string{UnusedDatagram}}
	// If no layer lists hosts, every name gets an address, and the decision is made for each
	// connection.
	if !p.Reachable(UnusedName) {
		l.Unknown = []string{UnusedName}
	}
	denied := ""
	for _, h := range p.merged.Network.Hosts {
		if h.Host == "" || strings.HasPrefix(h.Host, "*") {
			continue
		}
		if _, err := netip.ParseAddr(h.Host); err == nil {
			continue
		}
		if !p.Reachable(h.Host) {
			if denied == "" {
				denied = h.Host
			}
			continue
		}
		port := p.open(h)
		if len(l.Known) > 0 && (len(l.Reached) > 0 || port == 0) {
			continue // the chosen host is at least as good
		}
		l.Known, l.Closed = []string{h.Host}, nil
		if port > 0 {
			l.Reached = []string{hostPort(h.Host, port)}
		}
		for _, closed := range closedPorts {
			if p.Connect(h.Host, closed).Effect == egress.Deny {
				l.Closed = []string{hostPort(h.Host, closed)}
				break
			}
		}
	}
	if denied != "" {
		l.Unknown = append(l.Unknown, denied)
	}
	return l
}

// open returns a port of a host that can be probed without side effects, or zero. A rule that
// limits connections would count the probe.
func (p *Policy) open(h Host) int {
	ports := []int{443, 80}
	for _, r := range h.Ports {
		ports = append(ports, r.First)
	}
	for _, port := range ports {
		c := p.Connect(h.Host, port)
		if c.Effect != egress.Deny && !c.Tunnel && c.Limits.Connections == 0 {
			return port
		}
	}
	return 0
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
