package attachment

import (
	"encoding/binary"
	"errors"
	"sync"
)

const (
	// streamPrefix is the length before each frame of a stream.
	streamPrefix = 4
	// maxStreamFrame is the largest frame that QEMU passes on, NET_BUFSIZE there. A
	// guest may send one, and it is dropped. No peer in order announces a larger one.
	maxStreamFrame = 4096 + 65536
	// streamBuffer holds the largest frame, and many small ones.
	streamBuffer = 2 * (streamPrefix + maxStreamFrame)
)

var errBrokenStream = errors.New("a frame that is longer than frames can be")

var streamBuffers = sync.Pool{New: func() any { b := make([]byte, streamBuffer); return &b }}

// split hands over the whole frames at the start of data and returns the rest, which is
// shorter than the largest frame with its length.
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
