// Package attachment owns the connection between a sandbox's network and the egress gateway. It
// owns the forms in which traffic arrives, the network stack that terminates it, and the limits on
// what a hostile sandbox can cost. A Handler decides which traffic is allowed.
package attachment

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// Handler handles the traffic of a sandbox. Its methods are called concurrently.
type Handler interface {
	// TCP decides about a connection attempt to any address and port. It runs in its own goroutine
	// and may take as long as it needs. If it returns without accepting or refusing the flow, the
	// flow is refused. The handler must close an accepted connection, even after TCP has returned.
	TCP(f *Flow)

	// Names returns the answer to a DNS query to any server, in at most max bytes. Nil means no
	// answer.
	Names(query []byte, max int) []byte

	// Dropped reports dropped traffic, in a flood only samples. It is called by the packet reader,
	// so a slow call slows down the attachment.
	Dropped(proto string, dst netip.AddrPort)
}

// Options limit what one sandbox may cost. A zero field means the default, never unlimited.
type Options struct {
	// MaxConnections is the maximum number of connections, including those that are closing. The
	// default is 256.
	MaxConnections int
	// MaxHalfOpen is how many of them may wait for the handler, for the handshake or, with a Proxy,
	// for the first byte. The default is 128.
	MaxHalfOpen int
	// NamesPerSecond is the maximum number of answered DNS queries. The default is 200.
	NamesPerSecond int
	// ConnectsPerSecond is the maximum number of new connections. The default is 500.
	ConnectsPerSecond int
}

func (o Options) orDefault() Options {
	d := Options{MaxConnections: 256, MaxHalfOpen: 128, NamesPerSecond: 200, ConnectsPerSecond: 500}
	for _, f := range []struct{ have, def *int }{
		{&o.MaxConnections, &d.MaxConnections}, {&o.MaxHalfOpen, &d.MaxHalfOpen},
		{&o.NamesPerSecond, &d.NamesPerSecond}, {&o.ConnectsPerSecond, &d.ConnectsPerSecond},
	} {
		if *f.have <= 0 {
			*f.have = *f.def
		}
	}
	return o
}

// Counts are the counters of an attachment.
type Counts struct {
	Received    uint64 // frames from the sandbox
	Sent        uint64 // frames to it
	Lost        uint64 // frames for it that it was too slow to receive
	Dropped     uint64 // dropped frames
	Names       uint64 // queries answered
	Connections int    // open now
}

// Link is an attachment that carries packets. A network stack in the gateway terminates the
// sandbox's connections.
type Link struct {
	handler Handler
	options Options
	stack   *stack.Stack
	port    *port
	forward *tcp.Forwarder

	meters
	received, dropped, names atomic.Uint64
	asking                   atomic.Int64 // UDP queries being answered
	handshakes               atomic.Int64
	flows                    flows

	once    sync.Once
	closing atomic.Bool
	reading chan struct{} // closed when the reader has ended
	done    chan struct{}
}

// newPacketLink serves a port and takes ownership of it.
func newPacketLink(p *port, h Handler, o Options) (*Link, error) {
	l := &Link{port: p, handler: h, options: o.orDefault(), reading: make(chan struct{}), done: make(chan struct{})}
	l.meters = newMeters(l.options)
	l.flows.open = make(map[*slot]struct{})
	var err error
	if l.stack, err = newStack(l.port); err != nil {
		l.port.release()
		return nil, err
	}
	l.forward = tcp.NewForwarder(l.stack, receiveWindow, l.options.MaxHalfOpen, l.begin)
	l.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, l.withoutEndpoint)
	go func() {
		defer close(l.reading)
		l.port.read(l.take)
		// The sandbox has ended. Close waits for this goroutine.
		go l.Close()
	}()
	return l, nil
}

// Close implements Attachment.
func (l *Link) Close() error {
	l.once.Do(func() {
		l.closing.Store(true)
		// End the flows first, while the sandbox can still receive resets.
		l.flows.abort()
		l.abortHandshakes()
		l.port.flush(l.reading)
		l.port.shut()
		<-l.reading
		l.port.release()
		l.stack.Close()
		// Do not use the stack's own Wait, which would also wait for connections that a sandbox can
		// keep open.
		l.stack.TransportProtocolInstance(tcp.ProtocolNumber).Wait()
		_ = l.stack.RemoveNIC(nic)
		close(l.done)
	})
	<-l.done
	return nil
}

// Done implements Attachment.
func (l *Link) Done() <-chan struct{} { return l.done }

// Counts implements Attachment.
func (l *Link) Counts() Counts {
	return Counts{
		Received: l.received.Load(), Dropped: l.dropped.Load(), Names: l.names.Load(),
		Sent: l.port.sent.Load(), Lost: l.port.lost.Load(), Connections: l.flows.count(),
	}
}
