package relay

import (
	"encoding/binary"
	"net"
)

// A session writes the header of data and the data one after the other. Each
// write wakes the other side, which has nothing to do until it has both, and
// under a kernel in user space costs as much as a program's other system calls.
// So they are written together.

// The header of a frame of yamux: version, type, flags, stream and length.
const (
	sessionHeader = 12
	typeAt        = 1
	lengthAt      = 8
	typeData      = 0
)

// joiner writes the header of data together with the data. Only one goroutine
// writes.
type joiner struct {
	net.Conn
	buf  [wholeBytes - frameHeader]byte // what a host's frame holds
	held int                            // of a header whose data is yet to come
}

// Write implements net.Conn. A header is held until its data comes; a session
// that ends between the two has written neither.
func (j *joiner) Write(b []byte) (int, error) {
	if j.held == 0 {
		if !announces(b) {
			return j.Conn.Write(b)
		}
		j.held = copy(j.buf[:], b)
		return len(b), nil
	}
	first := copy(j.buf[j.held:], b)
	together := j.buf[:j.held+first]
	j.held = 0
	if _, err := j.Conn.Write(together); err != nil {
		return 0, err // the session ends with it
	}
	if first == len(b) {
		return first, nil
	}
	n, err := j.Conn.Write(b[first:])
	return first + n, err
}

// announces tells whether what a session writes is a header that data follows.
func announces(b []byte) bool {
	return len(b) == sessionHeader && b[typeAt] == typeData && binary.BigEndian.Uint32(b[lengthAt:]) > 0
}
