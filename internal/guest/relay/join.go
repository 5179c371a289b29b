package relay

import (
	"encoding/binary"
	"net"
)

// A session writes the header of data and the data separately. Each write wakes the peer, which
// needs both and is expensive to wake under a user-space kernel. So they are written together.

// The header of a yamux frame: version, type, flags, stream and length.
const (
	sessionHeader = 12
	typeAt        = 1
	lengthAt      = 8
	typeData      = 0
)

// joiner writes each header together with its data. Only one goroutine may write.
type joiner struct {
	net.Conn
	// both writes a header and its data. If it is nil, joiner copies them into one buffer.
	both func(head, data []byte) error

	head [sessionHeader]byte
	held bool   // head has a header whose data has not arrived yet
	buf  []byte // of header and data
}

// Write implements net.Conn. It holds a header until its data arrives.
func (j *joiner) Write(b []byte) (int, error) {
	if !j.held {
		if !isDataHeader(b) {
			return j.Conn.Write(b)
		}
		j.held = true
		return copy(j.head[:], b), nil
	}
	j.held = false
	var err error
	if j.both != nil {
		err = j.both(j.head[:], b)
	} else {
		err = j.writeCopied(b)
	}
	if err != nil {
		return 0, err // the session ends
	}
	return len(b), nil
}

// maxJoined is the maximum number of data bytes that are copied behind a header.
const maxJoined = fullFrame - frameHeader - sessionHeader

// writeCopied writes the held header and its data from one buffer.
func (j *joiner) writeCopied(data []byte) error {
	first := min(len(data), maxJoined)
	j.buf = append(append(j.buf[:0], j.head[:]...), data[:first]...)
	if _, err := j.Conn.Write(j.buf); err != nil || first == len(data) {
		return err
	}
	_, err := j.Conn.Write(data[first:])
	return err
}

// isDataHeader reports whether b is a header that data follows.
func isDataHeader(b []byte) bool {
	return len(b) == sessionHeader && b[typeAt] == typeData && binary.BigEndian.Uint32(b[lengthAt:]) > 0
}
