package attachment

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	namesPort = 53
	// maxNamesUDP is the DNS message size that every resolver accepts.
	maxNamesUDP = 512
	// maxAsking is the number of UDP queries that are answered concurrently.
	maxAsking = 32
	// namesIdle is how long a DNS connection may be idle.
	namesIdle = 10 * time.Second
)

// take handles one frame.
func (l *Link) take(frame []byte) {
	if l.closing.Load() {
		return
	}
	l.received.Add(1)
	p := l.port.parse(frame)
	switch p.verdict {
	case stream:
		if p.begins && !l.connects.Allow() {
			l.drop(&p)
			return
		}
		l.port.deliver(p.ip)
	case query:
		l.ask(p)
	case resolve:
		if !l.resolves.Allow() {
			l.drop(&p)
			return
		}
		l.port.sendARP(answerARP(p.ip))
	case refuse:
		if l.refusals.Allow() {
			l.port.send(p.unreachable())
		}
		l.drop(&p)
	default:
		l.drop(&p)
	}
}

// parse parses a frame of the port's kind.
func (p *port) parse(frame []byte) (got packet) {
	if p.ether == nil {
		got = parse(frame)
	} else {
		var from mac
		if got, from = parseEthernet(frame); got.verdict != drop {
			p.ether.learn(from)
		}
	}
	if p.summed && got.verdict != drop && got.verdict != resolve && !got.intact() {
		got.verdict, got.protocol = drop, "malformed"
	}
	return got
}

// drop counts a dropped packet and reports a sample. If a sandbox sends nothing else, reading
// pauses: the flood then fills the sandbox's own queue and does not cost the gateway processor
// time.
func (l *Link) drop(p *packet) {
	l.dropped.Add(1)
	if l.reports.Allow() {
		l.handler.Dropped(p.protocol, p.dst)
	}
	if !l.junk.Allow() {
		pauseReading(l.port.gone)
	}
}

// withoutEndpoint is called by the packet reader for a segment that belongs to no connection. It
// answers such segments with a reset, unless they begin a connection. In a flood it stops
// answering.
func (l *Link) withoutEndpoint(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	if l.forward.HandlePacket(id, pkt) {
		return true
	}
	if l.refusals.Allow() {
		return false
	}
	l.drop(&packet{protocol: "tcp", dst: addrPort(id.LocalAddress, id.LocalPort)})
	return true
}

// ask answers a UDP query. The frame's buffer belongs to the reader, so the query is copied.
func (l *Link) ask(p packet) {
	if !l.queries.Allow() {
		l.drop(&p)
		return
	}
	if l.asking.Add(1) > maxAsking {
		// A dropped query is not counted any more. Otherwise a burst would block DNS for the rest
		// of the sandbox's life.
		l.asking.Add(-1)
		l.drop(&p)
		return
	}
	p.payload = slices.Clone(p.payload)
	p.ip = nil
	go func() {
		defer l.asking.Add(-1)
		if reply := l.handler.Names(p.payload, maxNamesUDP); reply != nil && len(reply) <= maxNamesUDP {
			l.names.Add(1)
			l.port.send(p.answerUDP(reply))
		}
	}()
}

// serveNames answers DNS queries of at most longest bytes over a stream, one after the other, and
// closes the stream.
func serveNames(c net.Conn, h Handler, queries *rate.Limiter, longest uint16, answered *atomic.Uint64) {
	defer c.Close()
	var size [2]byte
	for {
		if c.SetDeadline(time.Now().Add(namesIdle)) != nil {
			return
		}
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		length := binary.BigEndian.Uint16(size[:])
		if length > longest {
			return
		}
		query := make([]byte, length)
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		if !queries.Allow() {
			return
		}
		reply := h.Names(query, 1<<16-1)
		if reply == nil || len(reply) > 1<<16-1 {
			return
		}
		answered.Add(1)
		if _, err := c.Write(binary.BigEndian.AppendUint16(nil, uint16(len(reply)))); err != nil {
			return
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}
