package attachment

import (
	"encoding/binary"
	"errors"
	"sync"
)

const (
	// streamPrefix is the size of the length before each frame of a stream.
	streamPrefix = 4
	// maxStreamFrame is the largest frame that QEMU passes on, its NET_BUFSIZE. A guest may send
	// one, and it is dropped. A correct peer never announces a larger one.
	maxStreamFrame = 4096 + 65536
	// streamBuffer holds the largest frame, or many small ones.
	streamBuffer = 2 * (streamPrefix + maxStreamFrame)
)

var errBrokenStream = errors.New("a frame is longer than the maximum")

var streamBuffers = sync.Pool{New: func() any { b := make([]byte, streamBuffer); return &b }}

// split passes on the complete frames at the start of data and returns the rest.
func split(data []byte, take func(frame []byte)) (rest []byte, err error) {
	for len(data) >= streamPrefix {
		n := binary.BigEndian.Uint32(data)
		if n > maxStreamFrame {
			return nil, errBrokenStream
		}
		end := streamPrefix + int(n)
		if len(data) < end {
			break
		}
		take(data[streamPrefix:end])
		data = data[end:]
	}
	return data, nil
}
