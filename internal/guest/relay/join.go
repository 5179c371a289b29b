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

// joiner writes a header together with its data. Only one goroutine may write.
type joiner struct {
	net.Conn
	// both writes a header and its data. If it is nil, they are copied into one buffer first.
	both func(head, data []byte) error

	head [sessionHeader]byte
	held bool   // a header whose data is yet to come
	buf  []byte // of header and data
}

// Write implements net.Conn. It holds a header until its data arrives.
func (j *joiner) Write(b []byte) (int, error) {
	if !j.held {
		if !announces(b) {
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
		err = j.together(b)
	}
	if err != nil {
		return 0, err // the session ends with it
	}
	return len(b), nil
}

// maxJoined is how much data is copied behind its header.
const maxJoined = fullFrame - frameHeader - sessionHeader

// together writes the held header and its data.
func (j *joiner) together(data []byte) error {
	first := min(len(data), maxJoined)
	j.buf = append(append(j.buf[:0], j.head[:]...), data[:first]...)
	if _, err := j.Conn.Write(j.buf); err != nil || first == len(data) {
		return err
	}
	_, err := j.Conn.Write(data[first:])
	return err
}

// announces reports whether b is a header that data follows.
func announces(b []byte) bool {
	return len(b) == sessionHeader && b[typeAt] == typeData && binary.BigEndian.Uint32(b[lengthAt:]) > 0
}
