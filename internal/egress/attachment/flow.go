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

// ErrDecided is returned by Accept of a flow that was accepted or refused.
var ErrDecided = errors.New("the flow was accepted or refused before")

// Flow is a connection that a sandbox has requested and that was not accepted or
// rejected yet.
type Flow struct {
	link    *Link
	request *tcp.ForwarderRequest
	source  netip.AddrPort
	dst     netip.AddrPort
	slot    *slot
	decided atomic.Bool
}

// Source returns the sandbox's end, which tells its flows apart.
func (f *Flow) Source() netip.AddrPort { return f.source }

// Destination returns where the sandbox wants to connect to.
func (f *Flow) Destination() netip.AddrPort { return f.dst }

// Accept completes the handshake. The connection has CloseRead and CloseWrite
// as a net.TCPConn has, and Reset, which ends it as an error.
func (f *Flow) Accept() (net.Conn, error) {
	if f.decided.Swap(true) {
		return nil, ErrDecided
	}
	// Counted before the look at closing, so that Close sees this handshake
	// or this handshake sees Close.
	f.link.handshakes.Add(1)
	defer f.link.handshakes.Add(-1)
	if f.link.closing.Load() {
		f.give()
		return nil, net.ErrClosed
	}
	var queue waiter.Queue
	endpoint, err := f.request.CreateEndpoint(&queue)
	if err != nil {
		f.give()
		return nil, fmt.Errorf("accept a connection to %s: %s", f.dst, err)
	}
	f.request.Complete(false)
	endpoint.SocketOptions().SetDelayOption(false)
	if f.link.flows.crowded() {
		endpoint.SocketOptions().SetSendBufferSize(crowdedBuffer, false)
		endpoint.SocketOptions().SetReceiveBufferSize(crowdedBuffer, false)
	}
	c := &conn{TCPConn: gonet.NewTCPConn(&queue, endpoint), endpoint: endpoint, link: f.link, slot: f.slot}
	f.link.flows.began(f.slot, endpoint)
	if f.link.closing.Load() {
		_ = c.Reset()
		return nil, net.ErrClosed
	}
	return c, nil
}

// Refuse answers with a reset: the program inside sees "connection refused".
func (f *Flow) Refuse() {
	if !f.decided.Swap(true) {
		f.give()
	}
}

func (f *Flow) give() {
	f.request.Complete(true)
	f.link.flows.ended(f.slot)
}

// begin is called for every connection attempt, in a goroutine of its own.
func (l *Link) begin(r *tcp.ForwarderRequest) {
	id := r.ID()
	f := &Flow{
		link: l, request: r,
		source: addrPort(id.RemoteAddress, id.RemotePort), dst: addrPort(id.LocalAddress, id.LocalPort),
	}
	if f.slot = l.flows.take(l.options.MaxConnections); f.slot == nil || l.closing.Load() {
		l.dropped.Add(1)
		if l.reports.Allow() {
			l.handler.Dropped("tcp", f.dst)
		}
		f.Refuse()
		return
	}
	if f.dst.Port() == namesPort {
		if c, err := f.Accept(); err == nil {
			l.serveNames(c)
		}
		return
	}
	defer f.Refuse()
	l.handler.TCP(f)
}

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(a.As4()), port)
}
