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

// small is the size of the buffer with which Copy begins. Most commands print less, and a large
// buffer must be cleared, which is a page fault for each of its pages.
const small = 8 << 10

var buffers = sync.Pool{New: func() any { return new([Size]byte) }}

// Copy copies src to dst until the end of src or until an error, and returns the number of bytes
// copied. It passes on the result of each read at once, and holds no large buffer after it returns.
func Copy(dst func([]byte) error, src io.Reader) (int64, error) {
	copied, full, err := copyWith(make([]byte, small), dst, src, true)
	if err != nil || !full {
		return copied, err
	}
	buffer := buffers.Get().(*[Size]byte)
	defer buffers.Put(buffer)
	more, _, err := copyWith(buffer[:], dst, src, false)
	return copied + more, err
}

// copyWith copies src to dst through a buffer. With untilFull it returns early, and full is true,
// once a read has filled the buffer.
func copyWith(buffer []byte, dst func([]byte) error, src io.Reader, untilFull bool) (copied int64, full bool, _ error) {
	for {
		n, err := src.Read(buffer)
		if n > 0 {
			if err := dst(buffer[:n]); err != nil {
				return copied, false, err
			}
			copied += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return copied, false, nil
		}
		if err != nil {
			return copied, false, err
		}
		if untilFull && n == len(buffer) {
			return copied, true, nil
		}
	}
}
