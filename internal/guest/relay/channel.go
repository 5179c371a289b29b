package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// A channel carries many streams over two pipes between the host and a guest. It survives saving
// the sandbox's state, which a forwarded port does not, and connects to the new host process when
// the sandbox is restored.
//
// The host sends frames of at most fullFrame, which a pipe accepts entirely or not at all, so that
// a host process that ends leaves no partial frame. A host process begins with a greeting, a random
// number that the guest repeats. All earlier data, in both directions, was for another host
// process.

// fullFrame is how many bytes a pipe accepts atomically: PIPE_BUF on Linux.
const fullFrame = 4096

const (
	frameHeader = 2
	greeting    = 0x8000 // in a frame's header, beside its length
	mark        = 0x4000 // is a frame without data, see Channel.Quiesce
	nonceSize   = 32
)

// sessionTimeout is the timeout of a channel's sessions. It is long, because a guest may be slow to
// respond while its state is being saved or its processors are busy.
const sessionTimeout = 10 * time.Minute

func sessionConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false // an idle sandbox must cost nothing
	c.ConnectionWriteTimeout = sessionTimeout
	c.StreamOpenTimeout = 0 // no limit: callers limit it by their contexts
	c.StreamCloseTimeout = linger
	c.LogOutput = io.Discard
	return c
}

// Inside connects the streams of a guest's end.
type Inside interface {
	// Serves reports whether the guest itself serves a port.
	Serves(port int) bool
	// Take serves a stream to one of the guest's own ports, and reports whether it did.
	Take(port int, stream net.Conn) bool
	// Open connects to a program's port. The host gets an error as a refusal.
	Open(port int) (net.Conn, error)
}

// Marked is an Inside that is called when the guest's end has read everything up to a mark of the
// host, see Channel.Quiesce.
type Marked interface{ Marked() }

// ServeChannel serves the guest's end of a channel until the pipe fails.
func ServeChannel(fromHost, toHost *os.File, inside Inside) error {
	c := &guestEnd{pipes: pipes{read: fromHost, write: toHost}, marked: func() {}}
	if m, ok := inside.(Marked); ok {
		c.marked = m.Marked
	}
	for {
		nonce, err := c.waitForGreeting()
		if err != nil {
			return err
		}
		if _, err := toHost.Write(nonce); err != nil {
			continue // that host process has ended
		}
		session, err := yamux.Server(&joiner{Conn: c}, sessionConfig())
		if err != nil {
			return err
		}
		serveSession(session, inside)
	}
}

// serveSession serves one host process until it ends or another one connects.
func serveSession(session *yamux.Session, inside Inside) {
	for {
		opened, err := session.AcceptStream()
		if err != nil {
			_ = session.Close() // it returns when the pipes are no longer used
			return
		}
		go serveStream(&channelStream{Stream: opened}, inside)
	}
}

// serveStream connects a stream to the requested port.
func serveStream(stream net.Conn, inside Inside) {
	var number [2]byte
	if _, err := io.ReadFull(stream, number[:]); err != nil {
		_ = stream.Close() // the caller has disconnected
		return
	}
	port := int(binary.BigEndian.Uint16(number[:]))
	if inside.Serves(port) {
		if _, err := stream.Write([]byte{accepted}); err != nil || !inside.Take(port, stream) {
			_ = stream.Close() // the caller has disconnected, or the server is closed
		}
		return
	}
	plain, err := inside.Open(port)
	if err != nil {
		_, _ = stream.Write([]byte{refused}) // an error is ignored, because closing has the same meaning
		_ = stream.Close()
		return
	}
	if _, err := stream.Write([]byte{accepted}); err == nil {
		splice(plain, stream)
	}
	_, _ = plain.Close(), stream.Close()
}

// channelStream adapts a stream of a channel to net.Conn. Closing it unblocks a reader at once,
// where yamux would wait until the peer closes too.
type channelStream struct {
	*yamux.Stream
	closed atomic.Bool
}

// Read implements net.Conn.
func (c *channelStream) Read(b []byte) (int, error) {
	n, err := c.Stream.Read(b)
	if err != nil && c.closed.Load() {
		err = net.ErrClosed
	}
	return n, err
}

// Close implements net.Conn.
func (c *channelStream) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return errors.Join(c.Stream.SetReadDeadline(time.Unix(1, 0)), c.Stream.Close())
}

// splice copies in both directions until one side ends and all its data has been delivered.
func splice(a, b net.Conn) {
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			// An error ends the stream in the same way as its end.
			_, _ = io.Copy(onlyWriter{way[1]}, onlyReader{way[0]})
			ended <- struct{}{}
		}()
	}
	<-ended
}

// onlyReader and onlyWriter disable the optimizations of io.Copy, which need more memory for each
// stream.
type onlyReader struct{ io.Reader }

type onlyWriter struct{ io.Writer }

// guestEnd is the guest's end of a channel. It serves one host process after the other over the
// same pipes.
type guestEnd struct {
	pipes
	buf    [128 << 10]byte
	have   []byte // read from the pipe and not yet returned
	left   int    // rest of the current frame
	marked func()

	mu   sync.Mutex
	next []byte // the greeting of the next host
}

// waitForGreeting waits for the greeting of a host process.
func (g *guestEnd) waitForGreeting() ([]byte, error) {
	if err := g.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	var rest [fullFrame]byte
	for {
		g.mu.Lock()
		nonce := g.next
		g.next = nil
		g.mu.Unlock()
		if nonce != nil {
			return nonce, nil
		}
		if _, err := g.Read(rest[:]); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
}

// Read implements net.Conn. It returns EOF at the next greeting, and again until the greeting is
// answered. If a session is reading a stream's data, it treats a single EOF as the end of that data
// only.
func (g *guestEnd) Read(b []byte) (int, error) {
	if g.mustAnswer() {
		return 0, io.EOF
	}
	for g.left == 0 {
		if err := g.fill(frameHeader); err != nil {
			return 0, err
		}
		head := binary.BigEndian.Uint16(g.have)
		if head&greeting == 0 {
			g.have = g.have[frameHeader:]
			if head == mark {
				g.marked()
				continue
			}
			g.left = int(head)
			continue
		}
		if head != greeting|nonceSize {
			return 0, errProtocol
		}
		if err := g.fill(frameHeader + nonceSize); err != nil {
			return 0, err
		}
		g.mu.Lock()
		g.next = bytes.Clone(g.have[frameHeader : frameHeader+nonceSize])
		g.mu.Unlock()
		g.have = g.have[frameHeader+nonceSize:]
		return 0, io.EOF
	}
	if err := g.fill(1); err != nil {
		return 0, err
	}
	n := copy(b, g.have[:min(len(g.have), g.left)])
	g.have, g.left = g.have[n:], g.left-n
	return n, nil
}

// mustAnswer reports whether a greeting of a host process is not answered yet.
func (g *guestEnd) mustAnswer() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next != nil
}

// fill reads until the buffer has at least n bytes.
func (g *guestEnd) fill(n int) error {
	for len(g.have) < n {
		if len(g.have) > 0 {
			copy(g.buf[:], g.have)
		}
		more, err := g.read.Read(g.buf[len(g.have):])
		g.have = g.buf[:len(g.have)+more]
		if err != nil {
			return err
		}
	}
	return nil
}

// Close implements net.Conn. The pipes stay open for the next host process.
func (g *guestEnd) Close() error { return g.SetDeadline(time.Unix(1, 0)) }
