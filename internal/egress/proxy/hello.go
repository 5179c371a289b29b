package proxy

import (
	"encoding/binary"
	"errors"
	"slices"
)

// errShort is returned if more bytes may complete a ClientHello.
var errShort = errors.New("the TLS hello is not complete")

// errHello is returned if the data is not a valid ClientHello. Anything unusual is rejected,
// because data that two parsers interpret differently could carry two names.
var errHello = errors.New("not a TLS hello that can be inspected")

const (
	recordHandshake = 22
	recordChange    = 20
	recordData      = 23
	recordHead      = 5
	// maxRecord is the maximum plaintext of a TLS record.
	maxRecord = 1 << 14
	// maxHello limits the data that is read before the name is known. Hellos with post-quantum keys
	// have about 2 KiB.
	maxHello = 32 << 10

	extensionName = 0
	extensionECH  = 0xfe0d
)

// hello is a ClientHello's information about its destination.
type hello struct {
	name string // as written; "" is none
	// ech is set if the hello may contain a second, encrypted one. The name in that can differ, and
	// only the server can distinguish it from a dummy.
	ech bool
}

// parseHello parses the ClientHello at the beginning of a TLS stream and returns how many bytes of
// the stream it has.
func parseHello(b []byte) (h hello, size int, err error) {
	m, size, err := handshake(b, 1)
	if err != nil {
		return hello{}, 0, err
	}
	if !m.skip(2 + 32) {
		return hello{}, 0, errHello
	}
	session, ok := m.vector8()
	if !ok || len(session) > 32 {
		return hello{}, 0, errHello
	}
	suites, ok := m.vector16()
	if !ok || len(suites) < 2 || len(suites)%2 != 0 {
		return hello{}, 0, errHello
	}
	if methods, ok := m.vector8(); !ok || len(methods) == 0 {
		return hello{}, 0, errHello
	}
	if len(m) == 0 {
		return hello{}, size, nil // no extensions, so no name
	}
	extensions, ok := m.vector16()
	if !ok || len(m) != 0 {
		return hello{}, 0, errHello
	}
	if h, ok = readExtensions(extensions); !ok {
		return hello{}, 0, errHello
	}
	return h, size, nil
}

func readExtensions(list cursor) (h hello, ok bool) {
	// If a type appears twice, some implementations use the first and others the last. 128 is more
	// than any client sends.
	var seen [128]uint16
	n := 0
	for len(list) > 0 {
		kind, ok := list.uint16()
		if !ok || n == len(seen) {
			return hello{}, false
		}
		if slices.Contains(seen[:n], kind) {
			return hello{}, false
		}
		seen[n] = kind
		n++
		data, ok := list.vector16()
		if !ok {
			return hello{}, false
		}
		switch kind {
		case extensionName:
			if h.name, ok = serverName(data); !ok {
				return hello{}, false
			}
		case extensionECH:
			h.ech = true
		}
	}
	return h, true
}

// serverName returns the one name of a server_name extension.
func serverName(data cursor) (string, bool) {
	list, ok := data.vector16()
	if !ok || len(data) != 0 || len(list) < 1 || list[0] != 0 {
		return "", false
	}
	list = list[1:]
	name, ok := list.vector16()
	if !ok || len(list) != 0 || len(name) == 0 || len(name) > 255 {
		return "", false
	}
	return string(name), true
}

// handshake returns the body of the handshake message of the given type at the beginning of a
// stream, and the size of its records. Records may split it anywhere, but must end with it.
func handshake(b []byte, kind byte) (body cursor, size int, err error) {
	var message []byte
	for {
		rest := b[size:]
		if len(rest) < recordHead {
			if len(rest) > 0 && rest[0] != recordHandshake || len(rest) > 1 && rest[1] != 3 {
				return nil, 0, errHello
			}
			return nil, 0, errShort
		}
		n := int(binary.BigEndian.Uint16(rest[3:]))
		if rest[0] != recordHandshake || rest[1] != 3 || n == 0 || n > maxRecord {
			return nil, 0, errHello
		}
		if size+recordHead+n > maxHello {
			return nil, 0, errHello
		}
		if len(rest) < recordHead+n {
			if len(message) == 0 && len(rest) > recordHead && rest[recordHead] != kind {
				return nil, 0, errHello
			}
			return nil, 0, errShort
		}
		if size == 0 {
			message = rest[recordHead : recordHead+n : recordHead+n]
		} else {
			message = append(message, rest[recordHead:recordHead+n]...)
		}
		size += recordHead + n
		if len(message) > 0 && message[0] != kind {
			return nil, 0, errHello
		}
		if len(message) < 4 {
			continue
		}
		length := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
		switch {
		case length > maxHello || len(message) > 4+length:
			return nil, 0, errHello
		case len(message) == 4+length:
			return cursor(message[4:]), size, nil
		}
	}
}

// cursor reads the length-prefixed parts of a message.
type cursor []byte

func (c *cursor) skip(n int) bool {
	if len(*c) < n {
		return false
	}
	*c = (*c)[n:]
	return true
}

func (c *cursor) uint16() (uint16, bool) {
	if len(*c) < 2 {
		return 0, false
	}
	v := binary.BigEndian.Uint16(*c)
	*c = (*c)[2:]
	return v, true
}

func (c *cursor) take(n int) (cursor, bool) {
	if len(*c) < n {
		return nil, false
	}
	v := (*c)[:n]
	*c = (*c)[n:]
	return v, true
}

func (c *cursor) vector8() (cursor, bool) {
	if len(*c) < 1 {
		return nil, false
	}
	n := int((*c)[0])
	*c = (*c)[1:]
	return c.take(n)
}

func (c *cursor) vector16() (cursor, bool) {
	n, ok := c.uint16()
	if !ok {
		return nil, false
	}
	return c.take(int(n))
}
