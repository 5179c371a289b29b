package redaction

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/crannog/crannog/internal/egress/redact"
)

// frameHead is the size of a message's header: a byte of flags and the length.
const frameHead = 5

const (
	flagCompressed = 1
	flagEnd        = 2    // Connect's last message, which is JSON
	flagTrailers   = 0x80 // gRPC-Web's last message, with trailers
)

// frameReader redacts each message separately and preserves its length. Text that was held back is
// released at the end of a message, so that a message never waits for the next.
type frameReader struct {
	source   io.Reader
	redactor func() *redact.Redactor
	stream   stream
	in       []byte
	left     int // of the message
	pending
}

// Read returns redacted messages as they arrive.
func (r *frameReader) Read(b []byte) (int, error) { return r.read(b, r.fill) }

func (r *frameReader) fill() {
	if r.in == nil {
		r.in, r.stream.redactor = make([]byte, pieceSize), r.redactor
	}
	if r.left == 0 {
		r.err = r.begin()
		return
	}
	n, err := r.source.Read(r.in[:min(r.left, len(r.in))])
	r.left -= n
	r.out = r.stream.append(r.out, r.in[:n])
	if err == io.EOF && r.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	r.err = err
	if r.left == 0 || err != nil {
		r.out = r.stream.end(r.out)
	}
}

func (r *frameReader) begin() error {
	if _, err := io.ReadFull(r.source, r.in[:frameHead]); err != nil {
		return err
	}
	if r.in[0]&flagCompressed != 0 {
		return unreadable("is compressed although the request did not ask for it")
	}
	r.left = int(binary.BigEndian.Uint32(r.in[1:frameHead]))
	r.out = append(r.out, r.in[:frameHead]...)
	return nil
}

// messages reads complete messages.
type messages struct {
	source *bufio.Reader
	limit  int
	large  []byte
}

// ready reports whether the next message has arrived already.
func (m *messages) ready() bool {
	if m.source.Buffered() < frameHead {
		return false
	}
	head, err := m.source.Peek(frameHead)
	return err == nil && uint64(binary.BigEndian.Uint32(head[1:])) <= uint64(m.source.Buffered()-frameHead)
}

// next returns a message, valid until the next call. io.EOF means the end between two messages.
func (m *messages) next() (flags byte, payload []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(m.source, head[:]); err != nil {
		return 0, nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if size > int64(m.limit) {
		return 0, nil, unreadable("contains a message that is too large")
	}
	n := int(size)
	if n <= m.source.Size() {
		if payload, err = m.source.Peek(n); err == nil {
			_, err = m.source.Discard(n)
		}
	} else {
		// Memory grows with received data, not with the announced length.
		if payload, err = readLarge(m.source, m.large[:0], n); cap(payload) <= keepLarge {
			m.large = payload
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return head[0], payload, err
}

// keepLarge bounds the size of the buffer that is reused between messages.
const keepLarge = 128 << 10

func readLarge(from io.Reader, to []byte, n int) ([]byte, error) {
	for len(to) < n {
		step := min(n-len(to), keepLarge)
		if cap(to)-len(to) < step {
			to = append(make([]byte, 0, len(to)+max(step, len(to))), to...)
		}
		got, err := io.ReadFull(from, to[len(to):len(to)+step])
		to = to[:len(to)+got]
		if err != nil {
			return to, io.ErrUnexpectedEOF
		}
	}
	return to, nil
}
