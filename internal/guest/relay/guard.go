package relay

import (
	"encoding/binary"
	"errors"
	"net"
)

// yamux frames that a genuine guest never sends.
const (
	flagsAt  = 2
	flagOpen = 1 // SYN
	typePing = 2
	typeLast = 3
)

// errGuest ends the session of a guest that sends such frames.
var errGuest = errors.New("the guest does not keep to the channel's protocol")

// guard reads for the host's session, and ends it at a frame that a genuine guest does not send.
// yamux answers each ping with a new goroutine, and buffers data of streams that were not accepted.
// An attacker who is root inside could use both to fill the server's memory.
type guard struct {
	net.Conn
	opens  bool // the guest may open streams
	header [sessionHeader]byte
	held   int    // bytes in header
	data   uint32 // rest of the current frame's data
	err    error
}

// Read implements net.Conn.
func (g *guard) Read(b []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(b)
	if g.err = g.check(b[:n]); g.err != nil {
		return 0, g.err
	}
	return n, err
}

// check inspects the frames in b.
func (g *guard) check(b []byte) error {
	for len(b) > 0 {
		if g.data > 0 {
			n := min(uint64(g.data), uint64(len(b)))
			g.data -= uint32(n)
			b = b[n:]
			continue
		}
		n := copy(g.header[g.held:], b)
		g.held += n
		b = b[n:]
		if g.held < sessionHeader {
			return nil
		}
		g.held = 0
		kind, flags := g.header[typeAt], binary.BigEndian.Uint16(g.header[flagsAt:])
		if kind == typePing || kind > typeLast || flags&flagOpen != 0 && !g.opens {
			return errGuest
		}
		if kind == typeData {
			g.data = binary.BigEndian.Uint32(g.header[lengthAt:])
		}
	}
	return nil
}
