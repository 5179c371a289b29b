package attachment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// ErrDecided is returned by Accept if the flow has already been accepted or refused.
var ErrDecided = errors.New("the flow was accepted or refused before")

// Flow is a connection that a sandbox has requested, until it is accepted or refused.
type Flow struct {
	attempt attempt
	source  netip.AddrPort
	dst     netip.AddrPort
	decided atomic.Bool
}

// attempt is a requested connection. Each kind of attachment has an implementation. Exactly one of
// its methods is called, once.
type attempt interface {
	accept() (net.Conn, error)
	refuse()
}

// Source returns the address of the sandbox's end, which distinguishes its flows.
func (f *Flow) Source() netip.AddrPort { return f.source }

// Destination returns the destination that the sandbox requested.
func (f *Flow) Destination() netip.AddrPort { return f.dst }

// Accept completes the handshake. Like net.TCPConn, the connection has CloseRead and CloseWrite. It
// also has Reset, which ends it with an error.
func (f *Flow) Accept() (net.Conn, error) {
	if f.decided.Swap(true) {
		return nil, ErrDecided
	}
	c, err := f.attempt.accept()
	if err != nil {
		return nil, fmt.Errorf("accept a connection to %s: %w", f.dst, err)
	}
	return c, nil
}

// Refuse resets the connection: the program inside gets "connection refused".
func (f *Flow) Refuse() {
	if !f.decided.Swap(true) {
		f.attempt.refuse()
	}
}

// segment is a connection attempt that began with a TCP segment.
type segment struct {
	link    *Link
	request *tcp.ForwarderRequest
	slot    *slot
}

func (s *segment) accept() (net.Conn, error) {
	l := s.link
	// Count before reading closing, so that either Close sees this handshake or this handshake sees
	// Close.
	l.handshakes.Add(1)
	defer l.handshakes.Add(-1)
	if l.closing.Load() {
		s.refuse()
		return nil, net.ErrClosed
	}
	var queue waiter.Queue
	endpoint, err := s.request.CreateEndpoint(&queue)
	if err != nil {
		s.refuse()
		return nil, errors.New(err.String())
	}
	s.request.Complete(false)
	endpoint.SocketOptions().SetDelayOption(false)
	if l.flows.hasManyConnections() {
		endpoint.SocketOptions().SetSendBufferSize(smallBuffer, false)
		endpoint.SocketOptions().SetReceiveBufferSize(smallBuffer, false)
	}
	c := &conn{TCPConn: gonet.NewTCPConn(&queue, endpoint), endpoint: endpoint, link: l, slot: s.slot}
	l.flows.began(s.slot, endpoint)
	if l.closing.Load() {
		_ = c.Reset()
		return nil, net.ErrClosed
	}
	return c, nil
}

func (s *segment) refuse() {
	s.request.Complete(true)
	s.link.flows.ended(s.slot)
}

// begin is called for every connection attempt, in its own goroutine.
func (l *Link) begin(r *tcp.ForwarderRequest) {
	id := r.ID()
	s := &segment{link: l, request: r}
	f := &Flow{attempt: s, source: addrPort(id.RemoteAddress, id.RemotePort), dst: addrPort(id.LocalAddress, id.LocalPort)}
	if s.slot = l.flows.take(l.options.MaxConnections); s.slot == nil || l.closing.Load() {
		l.dropped.Add(1)
		if l.reports.Allow() {
			l.handler.Dropped("tcp", f.dst)
		}
		f.Refuse()
		return
	}
	if f.dst.Port() == namesPort {
		if c, err := f.Accept(); err == nil {
			serveNames(c, l.handler, l.queries, 1<<16-1, &l.names)
		}
		return
	}
	defer f.Refuse()
	l.handler.TCP(f)
}

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(a.As4()), port)
}
