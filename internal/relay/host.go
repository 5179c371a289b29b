package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// Channel is the host's end of a channel. It is safe for concurrent use.
type Channel struct {
	conn  *hostEnd
	nonce []byte

	starting chan struct{} // full while the session is started
	seen     []byte        // of the guest's answer; whoever starts the session has it

	mu      sync.Mutex
	session *yamux.Session
	err     error // why there is none any more
}

// NewChannel begins a channel. The greeting may lie in the pipe until there is
// a guest. The channel owns both ends from here on.
func NewChannel(fromGuest, toGuest *os.File) (*Channel, error) {
	nonce, err := greet(toGuest)
	if err != nil {
		return nil, errors.Join(err, fromGuest.Close(), toGuest.Close())
	}
	return &Channel{
		conn: &hostEnd{pipes{read: fromGuest, write: toGuest}}, nonce: nonce, starting: make(chan struct{}, 1),
	}, nil
}

// Dial opens a stream to a port inside. A port on which nobody listens is
// ErrRefused.
func (c *Channel) Dial(ctx context.Context, port int) (net.Conn, error) {
	session, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	opened, err := session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	stream := &channelStream{Stream: opened}
	if err := ask(ctx, stream, port); err != nil {
		_ = stream.Close() // it failed already
		return nil, err
	}
	return stream, nil
}

// open starts the session with the first stream: an idle sandbox has none.
func (c *Channel) open(ctx context.Context) (*yamux.Session, error) {
	select {
	case c.starting <- struct{}{}:
		defer func() { <-c.starting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	session, err := c.session, c.err
	c.mu.Unlock()
	if session != nil || err != nil {
		return session, err
	}
	if err := c.answered(ctx); err != nil {
		return nil, err
	}
	session, err = yamux.Client(c.conn, sessionConfig())
	if err != nil {
		return nil, c.fail(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		_ = session.Close() // the channel was closed meanwhile
		return nil, c.err
	}
	c.session = session
	return session, nil
}

func (c *Channel) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	return c.err
}

// Broken tells whether no stream can be opened any more.
func (c *Channel) Broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.session != nil && c.session.IsClosed()
}

// Close ends all streams.
func (c *Channel) Close() error {
	_ = c.fail(net.ErrClosed)
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session != nil {
		return session.Close() // and with it the pipes
	}
	return c.conn.Close()
}

// nudgeEvery is how often a guest that does not answer is made to look again.
const nudgeEvery = 200 * time.Millisecond

// Nudge makes a guest look at its channel. When a sandbox's state is saved,
// gVisor takes what is in the pipe into its own memory, and tells nobody who
// waits for it that it is there: the next byte does. An empty frame says
// nothing else, and any process of the host may write one at any time.
func Nudge(toGuest *os.File) error {
	_, err := toGuest.Write(make([]byte, frameHeader))
	return err
}

// greet writes a greeting and returns its number.
func greet(toGuest *os.File) ([]byte, error) {
	frame := make([]byte, frameHeader+nonceSize)
	binary.BigEndian.PutUint16(frame, greeting|nonceSize)
	if _, err := rand.Read(frame[frameHeader:]); err != nil {
		return nil, err
	}
	if _, err := toGuest.Write(frame); err != nil {
		return nil, fmt.Errorf("greet the guest: %w", err)
	}
	return frame[frameHeader:], nil
}

// hostEnd is the host's end of a channel as a connection.
type hostEnd struct{ pipes }

// Write implements net.Conn, in frames.
func (h *hostEnd) Write(b []byte) (int, error) {
	var frame [wholeBytes]byte
	done := 0
	for done < len(b) {
		n := copy(frame[frameHeader:], b[done:])
		binary.BigEndian.PutUint16(frame[:], uint16(n))
		if _, err := h.pipes.Write(frame[:frameHeader+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// answered reads until the guest has repeated the greeting. What came before
// that was for another host. A caller that gives up leaves the rest to the next.
func (c *Channel) answered(ctx context.Context) error {
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return c.fail(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// The greeting may have been taken out of the pipe by a save of the
	// sandbox's state that another host had begun.
	again := time.NewTicker(nudgeEvery)
	defer again.Stop()
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case <-again.C:
				_ = Nudge(c.conn.write) // who reads tells what is wrong
			case <-over:
				return
			}
		}
	}()
	var one [1]byte
	for !bytes.HasSuffix(c.seen, c.nonce) {
		if _, err := io.ReadFull(c.conn, one[:]); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return c.fail(fmt.Errorf("the guest does not answer: %w", err))
		}
		if len(c.seen) > 4*nonceSize {
			c.seen = append(c.seen[:0], c.seen[len(c.seen)-nonceSize:]...)
		}
		c.seen = append(c.seen, one[0])
	}
	if !stop() {
		return context.Cause(ctx) // the deadline is set or about to be
	}
	return nil
}
