package proxy

import (
	"io"
	"sync"
)

const (
	smallBuffer = 4 << 10
	largeBuffer = 64 << 10
)

// Buffers are shared by all sandboxes, and an idle connection uses none.
var (
	smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
)

// copyCounted copies data until the source ends. It waits with a small buffer and uses a large one
// only while data keeps arriving, so that an idle connection needs little memory. It calls count
// before it writes data, and stops if count returns an error.
func copyCounted(dst io.Writer, src io.Reader, count func(n int) error) error {
	small := smallBuffers.Get().(*[smallBuffer]byte)
	defer smallBuffers.Put(small)
	var large *[largeBuffer]byte
	defer func() {
		if large != nil {
			largeBuffers.Put(large)
		}
	}()
	buf := small[:]
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if stop := count(n); stop != nil {
				return stop
			}
			if _, failed := dst.Write(buf[:n]); failed != nil {
				return failed
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case large == nil && n == smallBuffer:
			large = largeBuffers.Get().(*[largeBuffer]byte)
			buf = large[:]
		case large != nil && n < smallBuffer:
			largeBuffers.Put(large)
			large, buf = nil, small[:]
		}
	}
}
