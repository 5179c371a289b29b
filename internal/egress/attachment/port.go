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
	carrier
	// summed is set where the other end is a whole kernel, which wants checksums.
	summed bool
	// ether is set where packets are in Ethernet frames.
	ether *ethernet

	dispatcher atomic.Pointer[stack.NetworkDispatcher]
	sent, lost atomic.Uint64

	// mu orders writes and guards the descriptor's end.
	mu      sync.Mutex
	fd      int
	closed  bool
	waiting [][]byte // frames that the socket had no room for
	bytes   int      // of them
	head    []byte   // what goes before each packet
	parts   [][]byte // of the packet being written, head included
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
	p := &port{fd: -1, gone: make(chan struct{}), summed: kind != Packets}
	if kind == Ethernet {
		p.ether = &ethernet{}
	}
	controlErr := old.Control(func(fd uintptr) {
		if p.carrier, err = carrierOf(kind, int(fd)); err != nil {
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

// shut ends the link for both sides. What was written before still arrives.
func (p *port) shut() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.gone)
		p.waiting, p.bytes = nil, 0
		if p.carrier != device {
			_ = unix.Shutdown(p.fd, unix.SHUT_RDWR)
		}
		if !p.ends() {
			// Nothing wakes the reader: it stops here. A device goes with its last
			// descriptor.
			_ = p.file.SetDeadline(time.Unix(1, 0))
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
