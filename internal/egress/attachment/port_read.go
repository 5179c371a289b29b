package attachment

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// buffers are shared by all attachments, so that only active readers need one.
var buffers = sync.Pool{New: func() any { b := make([]byte, maxFrame); return &b }}

// read calls take for each frame until the attachment ends. A frame is valid only during the call.
func (p *port) read(take func(frame []byte)) {
	if p.carrier == byteStream {
		p.readStream(take)
		return
	}
	for over := false; !over; {
		err := p.raw.Read(func(fd uintptr) bool {
			b := buffers.Get().(*[]byte)
			defer buffers.Put(b)
			for {
				n, err := unix.Read(int(fd), *b)
				switch {
				case errors.Is(err, unix.EAGAIN):
					return false
				case errors.Is(err, unix.EINTR):
				case err != nil || n <= 0 && p.ends():
					over = true
					return true
				default:
					take((*b)[:n])
				}
			}
		})
		if err != nil {
			return
		}
	}
}

// readStream is read for frames that are preceded by their length. An idle stream stores only the
// part of a frame that has arrived.
func (p *port) readStream(take func(frame []byte)) {
	var rest []byte
	for over := false; !over; {
		err := p.raw.Read(func(fd uintptr) bool {
			b := streamBuffers.Get().(*[]byte)
			defer streamBuffers.Put(b)
			have := copy(*b, rest)
			for {
				n, err := unix.Read(int(fd), (*b)[have:])
				switch {
				case errors.Is(err, unix.EAGAIN):
					rest = slices.Clone((*b)[:have])
					return false
				case errors.Is(err, unix.EINTR):
					continue
				case err != nil || n <= 0:
					over = true
					return true
				}
				left, err := split((*b)[:have+n], take)
				if err != nil {
					// The start of the next frame cannot be found any more.
					over = true
					return true
				}
				have = copy(*b, left)
			}
		})
		if err != nil {
			return
		}
	}
}
