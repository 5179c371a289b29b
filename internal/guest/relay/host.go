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

	"github.com/crannog/crannog/internal/host/interrupt"
)

// Channel is the host's end of a channel. It is safe for concurrent use.
type Channel struct {
	conn  *hostEnd
	nonce []byte

	reminder reminder
	quiet    bool // no reminders are sent

	openings chan struct{} // holds a value for each stream that is being opened
	starting chan struct{} // holds a value while the session is started
	received []byte        // read from the guest; owned by the goroutine that starts the session

	mu      sync.Mutex
	session *yamux.Session
	err     error // why the session ended
}

// NewChannel returns the host's end of a channel. The greeting may stay in the pipe until there is
// a guest. The channel takes ownership of both files.
func NewChannel(fromGuest, toGuest *os.File) (*Channel, error) {
	nonce, err := greet(toGuest)
	if err != nil {
		return nil, errors.Join(err, fromGuest.Close(), toGuest.Close())
	}
	c := &Channel{nonce: nonce, openings: make(chan struct{}, openings), starting: make(chan struct{}, 1)}
	c.conn = &hostEnd{pipes: pipes{read: fromGuest, write: toGuest}, wrote: c.reminder.wrote}
	c.reminder.send = c.sendReminder
	return c, nil
}

// NewSocketChannel is NewChannel for the kernel of a virtual machine, which wakes the guest for each
// byte, so that it needs no reminders. The files are a stream socket, which does not keep frames
// whole as a pipe does: a reminder between two parts of a frame would damage the channel.
func NewSocketChannel(fromGuest, toGuest *os.File) (*Channel, error) {
	c, err := NewChannel(fromGuest, toGuest)
	if err == nil {
		c.quiet = true
		c.reminder.stop()
	}
	return c, err
}

// Quiesce stops all writes to the guest until release is called, and sends a mark. Once the guest
// has read it, no part of a frame is on its way. The state of a machine that is saved then can
// continue with another host process.
func (c *Channel) Quiesce() (release func(), err error) {
	c.conn.gate.Lock()
	var frame [frameHeader]byte
	binary.BigEndian.PutUint16(frame[:], mark)
	if _, err := c.conn.pipes.Write(frame[:]); err != nil {
		c.conn.gate.Unlock()
		return nil, fmt.Errorf("mark the channel: %w", err)
	}
	return c.conn.gate.Unlock, nil
}

// Dial opens a stream to a port inside. It returns ErrRefused for a port without a listener.
func (c *Channel) Dial(ctx context.Context, port int) (net.Conn, error) {
	session, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer c.remindRepeatedly()()
	stream, err := c.begin(ctx, session, port)
	if err != nil {
		return nil, err
	}
	if err := within(ctx, stream, func() error { return readAnswer(stream) }); err != nil {
		go func() { _ = stream.Close() }() // err has the reason, and closing may block
		return nil, err
	}
	return stream, nil
}

// openings limits how many streams are opened concurrently, and so how many can wait for a guest
// that does not read.
const openings = 64

// begin opens a stream and sends its port number. A session does not support contexts and waits for
// a guest that does not read. So begin returns when the context ends, and a stream that opens later
// is closed.
func (c *Channel) begin(ctx context.Context, session *yamux.Session, port int) (*channelStream, error) {
	select {
	case c.openings <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type result struct {
		stream *channelStream
		err    error
	}
	results := make(chan result)
	go func() {
		defer func() { <-c.openings }()
		opened, err := session.OpenStream()
		if err != nil {
			err = fmt.Errorf("open a stream: %w", err)
		}
		stream := &channelStream{Stream: opened}
		if err == nil {
			err = sendPort(stream, port)
		}
		select {
		case results <- result{stream, err}:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil && opened != nil {
			_ = stream.Close() // the caller has left
		}
	}()
	select {
	case r := <-results:
		return r.stream, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// open returns the session. It starts it for the first stream, because an idle sandbox needs none.
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
	if err := c.waitForAnswer(ctx); err != nil {
		return nil, err
	}
	session, err = yamux.Client(&joiner{Conn: &guard{Conn: c.conn}, both: c.conn.writeBoth}, sessionConfig())
	if err != nil {
		return nil, c.fail(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		_ = session.Close() // the channel was closed at the same time
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

// Broken reports whether no more streams can be opened.
func (c *Channel) Broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.session != nil && c.session.IsClosed()
}

// Close ends all streams.
func (c *Channel) Close() error {
	_ = c.fail(net.ErrClosed)
	c.reminder.stop()
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session != nil {
		return session.Close() // and with it the pipes
	}
	return c.conn.Close()
}

// greetTime limits how long a host process waits to write its greeting. The pipe may be full if the
// guest does not read.
const greetTime = 3 * time.Second

// greet writes a greeting and returns its random number.
func greet(toGuest *os.File) ([]byte, error) {
	if err := toGuest.SetWriteDeadline(time.Now().Add(greetTime)); err != nil {
		return nil, fmt.Errorf("greet the guest: %w", err)
	}
	frame := make([]byte, frameHeader+nonceSize)
	binary.BigEndian.PutUint16(frame, greeting|nonceSize)
	if _, err := rand.Read(frame[frameHeader:]); err != nil {
		return nil, err
	}
	if _, err := toGuest.Write(frame); err != nil {
		return nil, fmt.Errorf("greet the guest: %w", err)
	}
	if err := toGuest.SetWriteDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("greet the guest: %w", err)
	}
	return frame[frameHeader:], nil
}

// hostEnd adapts the host's end of a channel to net.Conn.
type hostEnd struct {
	pipes
	wrote func()     // is called after every write
	gate  sync.Mutex // held during a write, and while the channel is quiet
}

// batchFrames is the number of complete frames in one write.
const batchFrames = 32

// Write implements net.Conn. It writes frames.
func (h *hostEnd) Write(b []byte) (int, error) {
	if err := h.writeBoth(nil, b); err != nil {
		return 0, err // the session ends
	}
	return len(b), nil
}

// writeBoth writes both buffers as one, in frames. Each complete frame is a page of the pipe. Linux
// copies page by page, so that a host process that ends in the middle leaves no partial frame. An
// incomplete frame is written separately.
func (h *hostEnd) writeBoth(head, data []byte) error {
	h.gate.Lock()
	defer h.gate.Unlock()
	defer h.wrote()
	const limit = fullFrame - frameHeader
	for left := len(head) + len(data); left > 0; left = len(head) + len(data) {
		if left < limit {
			var frame [fullFrame]byte
			n := putFrame(frame[:], &head, &data)
			_, err := h.pipes.Write(frame[:frameHeader+n])
			return err
		}
		frames := min(left/limit, batchFrames)
		batch := batches.Get().(*[batchFrames * fullFrame]byte)
		for i := range frames {
			putFrame(batch[i*fullFrame:(i+1)*fullFrame], &head, &data)
		}
		_, err := h.pipes.Write(batch[:frames*fullFrame])
		batches.Put(batch)
		if err != nil {
			return err
		}
	}
	return nil
}

// batches contains buffers of writeBoth, which are used only during a write.
var batches = sync.Pool{New: func() any { return new([batchFrames * fullFrame]byte) }}

// putFrame fills a frame from both buffers, removes the copied data from them and returns the size
// of the frame.
func putFrame(frame []byte, head, data *[]byte) int {
	n := copy(frame[frameHeader:], *head)
	*head = (*head)[n:]
	m := copy(frame[frameHeader+n:], *data)
	*data = (*data)[m:]
	binary.BigEndian.PutUint16(frame, uint16(n+m))
	return n + m
}

// waitForAnswer reads until the guest has repeated the greeting. Earlier data was for another host
// process. If the context ends, the next caller continues.
func (c *Channel) waitForAnswer(ctx context.Context) error {
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return c.fail(err)
	}
	// A deadline that is set too late would make the next caller's reads fail, and with them the
	// channel.
	inTime := interrupt.When(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer inTime()
	defer c.remindRepeatedly()()
	var one [1]byte
	for !bytes.HasSuffix(c.received, c.nonce) {
		if _, err := io.ReadFull(c.conn, one[:]); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return c.fail(fmt.Errorf("the guest does not answer: %w", err))
		}
		// Only the last bytes can be a part of the nonce, so the others are dropped.
		if len(c.received) > 4*nonceSize {
			c.received = append(c.received[:0], c.received[len(c.received)-nonceSize:]...)
		}
		c.received = append(c.received, one[0])
	}
	if !inTime() {
		return context.Cause(ctx)
	}
	return nil
}
