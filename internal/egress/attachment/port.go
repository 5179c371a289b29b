package attachment

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// port is the stack's network card: our descriptor of the link, on Go's
// poller. An idle port has one parked goroutine, no thread and no buffer.
type port struct {
	file *os.File
	raw  syscall.RawConn
	// tun is set for the descriptor of a TUN device, which is not a socket. Its
	// other end is a whole kernel, which wants checksums.
	tun bool

	dispatcher atomic.Pointer[stack.NetworkDispatcher]
	sent, lost atomic.Uint64

	// mu orders writes and guards the descriptor's end.
	mu      sync.Mutex
	fd      int
	closed  bool
	waiting [][]byte // frames that the socket had no room for
	bytes   int      // of them
	ended   sync.WaitGroup
	gone    chan struct{} // closed with the descriptor
}

const (
	// maxFrame is more than a frame can be, so that a longer one shows.
	maxFrame = 64 << 10
	// maxWaiting bounds the bytes that wait for a sandbox that does not
	// read. Beyond it frames are lost, and TCP slows down.
	maxWaiting = 4 << 20
	// socketBuffer is how much the kernel holds for either end.
	socketBuffer = 1 << 20
)

// widen asks for a socket buffer that holds some large frames. Without the
// privilege the host's own maximum is what it will be, which works too.
func widen(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
	}
}

// newPort takes file over. It makes a descriptor of its own, because only one
// that does not block when Go first sees it gets onto the poller.
func newPort(kind Kind, file *os.File) (*port, error) {
	defer file.Close()
	old, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &port{fd: -1, gone: make(chan struct{}), tun: kind == Tap}
	controlErr := old.Control(func(fd uintptr) {
		if err = p.check(int(fd)); err != nil {
			return
		}
		p.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	if err := unix.SetNonblock(p.fd, true); err != nil {
		unix.Close(p.fd)
		return nil, fmt.Errorf("link: %w", err)
	}
	p.file = os.NewFile(uintptr(p.fd), "link")
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, fmt.Errorf("link: %w", err)
	}
	return p, nil
}

// check refuses a descriptor that is not of the port's kind.
func (p *port) check(fd int) error {
	if p.tun {
		var info unix.Stat_t
		if err := unix.Fstat(fd, &info); err != nil {
			return err
		}
		// Not TUNGETIFF: the confined gateway has no ioctl. A device whose frames
		// begin with another header sends nothing that parse lets through.
		if info.Mode&unix.S_IFMT != unix.S_IFCHR || info.Rdev != unix.Mkdev(10, 200) {
			return errors.New("not a TUN device")
		}
		return nil
	}
	form, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err == nil && form != unix.SOCK_SEQPACKET {
		err = errors.New("not a socket that keeps the borders of packets")
	}
	return err
}

// write sends one frame without waiting.
func (p *port) write(fd int, parts [][]byte) error {
	if p.tun {
		_, err := unix.Writev(fd, parts)
		return err
	}
	_, err := unix.SendmsgBuffers(fd, parts, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err
}

// shut ends the link for both sides. What was written before still arrives.
func (p *port) shut() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.gone)
		p.waiting, p.bytes = nil, 0
		if p.tun {
			// It has no end to send: reading and writing stop here, and the device
			// goes with its last descriptor.
			_ = p.file.SetDeadline(time.Unix(1, 0))
		} else {
			_ = unix.Shutdown(p.fd, unix.SHUT_RDWR)
		}
	}
	p.mu.Unlock()
	p.ended.Wait()
}

const (
	// farewell bounds how long a live sandbox is given to take the resets of
	// its connections, and grace is for its kernel to act on them: one that
	// finds the end of its link first forgets what it has not looked at.
	farewell = 50 * time.Millisecond
	grace    = 2 * time.Millisecond
)

// flush waits until the sandbox has read what was written, if it does so soon.
func (p *port) flush(over <-chan struct{}) {
	tick := time.NewTicker(grace)
	defer tick.Stop()
	for end := time.Now().Add(farewell); time.Now().Before(end); {
		p.mu.Lock()
		unread, err := unix.IoctlGetInt(p.fd, unix.SIOCOUTQ)
		unread += p.bytes
		p.mu.Unlock()
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if err != nil || unread == 0 {
			return
		}
	}
}

// release closes the descriptor, after shut and once no goroutine reads. A close with
// unread data would discard what the sandbox has not read yet, including the resets
// of its connections.
func (p *port) release() { p.file.Close() }

// buffers are shared by all links, so that only those that read hold one.
var buffers = sync.Pool{New: func() any { b := make([]byte, maxFrame); return &b }}

// read hands over frames until the link ends. A frame is valid only during
// the call.
func (p *port) read(take func(frame []byte)) {
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
				case err != nil || n <= 0:
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

// send writes one frame that is not the stack's.
func (p *port) send(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.put([][]byte{frame})
	}
}

// maxParts is how many pieces the kernel takes in one write.
const maxParts = 1024

// put writes a frame, or keeps it where the socket is full. mu is held.
func (p *port) put(parts [][]byte) {
	if len(parts) > maxParts {
		parts = [][]byte{join(parts)}
	}
	if len(p.waiting) == 0 {
		err := p.write(p.fd, parts)
		if err == nil {
			p.sent.Add(1)
			return
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			// The sandbox's end is gone, which the reader sees too.
			p.lost.Add(1)
			return
		}
	}
	frame := join(parts)
	if p.bytes+len(frame) > maxWaiting {
		p.lost.Add(1)
		return
	}
	if p.waiting = append(p.waiting, frame); len(p.waiting) == 1 {
		p.ended.Add(1)
		go p.drain()
	}
	p.bytes += len(frame)
}

func join(parts [][]byte) []byte {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	frame := make([]byte, 0, n)
	for _, part := range parts {
		frame = append(frame, part...)
	}
	return frame
}

// drain writes what waits, and ends when nothing does.
func (p *port) drain() {
	defer p.ended.Done()
	_ = p.raw.Write(func(fd uintptr) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for len(p.waiting) > 0 {
			frame := p.waiting[0]
			err := p.write(int(fd), [][]byte{frame})
			switch {
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
