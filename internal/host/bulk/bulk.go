// Package bulk owns copying large amounts of data through large, reused buffers. Each write wakes
// the process at the other end, so a few large writes cost less than many small ones.
package bulk

import (
	"errors"
	"io"
	"sync"
)

// Size is the size of a buffer, and so the maximum size of one write.
const Size = 256 << 10

var buffers = sync.Pool{New: func() any { return new([Size]byte) }}

// Copy copies src to dst until the end of src or until an error, and returns the number of bytes
// copied. It passes on the result of each read at once, and holds no buffer after it returns.
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
