package attachment

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// send writes one frame that does not come from the stack.
func (p *port) send(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.put([][]byte{frame})
	}
}

// sendARP writes an ARP message.
func (p *port) sendARP(message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.putFrame(p.framed([][]byte{message}, etherARP))
	}
}

// maxParts is the maximum number of buffers in one write.
const maxParts = 1024

// put writes a packet, or queues it if the socket is full. mu must be held.
func (p *port) put(parts [][]byte) {
	if p.ether != nil {
		parts = p.framed(parts, etherIPv4)
	}
	p.putFrame(parts)
}

// framed prepends the Ethernet header to a payload and, in a stream, the length. mu must be held.
// The result is valid until the next call.
func (p *port) framed(parts [][]byte, etherType uint16) [][]byte {
	p.head = p.head[:0]
	if p.carrier == byteStream {
		p.head = binary.BigEndian.AppendUint32(p.head, uint32(etherHeader+size(parts)))
	}
	p.head = p.ether.header(p.head, etherType)
	p.parts = append(append(p.parts[:0], p.head), parts...)
	return p.parts
}

// putFrame is put for a complete frame. mu must be held.
func (p *port) putFrame(parts [][]byte) {
	if len(parts) > maxParts {
		parts = [][]byte{join(parts)}
	}
	written := 0
	if len(p.waiting) == 0 {
		n, err := p.write(p.fd, parts)
		switch {
		case err == nil && (p.carrier != byteStream || n == size(parts)):
			p.sent.Add(1)
			return
		case err == nil:
			written = n
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
			// The sandbox's end is closed, which the reader detects too.
			p.lost.Add(1)
			return
		}
	}
	frame := join(parts)[written:]
	// The rest of a frame that was started on a stream is always queued, because it must follow.
	if written == 0 && p.bytes+len(frame) > maxWaiting {
		p.lost.Add(1)
		return
	}
	if p.waiting = append(p.waiting, frame); len(p.waiting) == 1 {
		p.ended.Add(1)
		go p.drain()
	}
	p.bytes += len(frame)
}

func size(parts [][]byte) (n int) {
	for _, part := range parts {
		n += len(part)
	}
	return n
}

func join(parts [][]byte) []byte {
	frame := make([]byte, 0, size(parts))
	for _, part := range parts {
		frame = append(frame, part...)
	}
	return frame
}

// drain writes queued frames, and ends when there are none.
func (p *port) drain() {
	defer p.ended.Done()
	_ = p.raw.Write(func(fd uintptr) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for len(p.waiting) > 0 {
			frame := p.waiting[0]
			n, err := p.write(int(fd), [][]byte{frame})
			switch {
			case err == nil && p.carrier == byteStream && n < len(frame):
				p.waiting[0], p.bytes = frame[n:], p.bytes-n
				continue
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.EINTR):
				continue
			case err != nil:
				p.lost.Add(1)
			default:
				p.sent.Add(1)
			}
			p.waiting[0] = nil
			p.waiting, p.bytes = p.waiting[1:], p.bytes-len(frame)
		}
		p.waiting = nil
		return true
	})
}
