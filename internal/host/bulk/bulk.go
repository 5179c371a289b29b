// Package bulk owns copies of much data through buffers that are large and used
// again. What waits for the other side of a copy has to be woken for each piece, so
// that a few large pieces cost less than many small ones.
package bulk

import (
	"errors"
	"io"
	"sync"
)

// Size is how much a piece holds at most.
const Size = 256 << 10

var buffers = sync.Pool{New: func() any { return new([Size]byte) }}

// Copy copies until the end of src, or until an error. It writes what each read
// returns at once, and holds no buffer afterwards.
func Copy(dst func([]byte) error, src io.Reader) (int64, error) {
	buffer := buffers.Get().(*[Size]byte)
	defer buffers.Put(buffer)
	var copied int64
	for {
		n, err := src.Read(buffer[:])
		if n > 0 {
			if err := dst(buffer[:n]); err != nil {
				return copied, err
			}
			copied += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return copied, nil
		}
		if err != nil {
			return copied, err
		}
	}
}
