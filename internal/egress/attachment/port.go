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

// port is the stack's link endpoint: the gateway's descriptor of the attachment. It uses Go's
// poller, so an idle port needs one parked goroutine, but no thread and no buffer.
type port struct {
	file *os.File
	raw  syscall.RawConn
	carrier
	// summed is set if the peer is a kernel, which needs checksums.
	summed bool
	// ether is set if packets are in Ethernet frames.
	ether *ethernet

	dispatcher atomic.Pointer[stack.NetworkDispatcher]
	sent, lost atomic.Uint64

	// mu serializes writes and guards the descriptor's end.
	mu      sync.Mutex
	fd      int
	closed  bool
	waiting [][]byte // frames that the socket had no room for
	bytes   int      // their size
	head    []byte   // bytes before each packet
	parts   [][]byte // parts of the packet being written, head included
	ended   sync.WaitGroup
	gone    chan struct{} // closed with the descriptor
}

const (
	// maxFrame exceeds the size of any valid frame, so that longer ones are detected.
	maxFrame = 64 << 10
	// maxWaiting limits the bytes that are queued for a sandbox that does not read. Beyond it
	// frames are dropped, and TCP slows down.
	maxWaiting = 4 << 20
	// socketBuffer is the size of the kernel's buffer for either end.
	socketBuffer = 1 << 20
)

// widen requests a socket buffer for several large frames. Without the privilege, the kernel grants
// the host's maximum, which is enough too.
func widen(fd int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
	}
}

// newPort takes ownership of file. It opens a descriptor of its own, because Go uses the poller
// only for descriptors that are non-blocking from the start.
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

// shut ends the attachment for both sides. Data that was written before still arrives.
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
			// Nothing else wakes the reader of a device. The device disappears with its last
			// descriptor.
			_ = p.file.SetDeadline(time.Unix(1, 0))
		}
	}
	p.mu.Unlock()
	p.ended.Wait()
}

const (
	// farewell is how long a live sandbox has to receive the resets of its connections, and grace
	// how long its kernel has to act on them. A kernel that first detects the end of its attachment
	// discards unread packets.
	farewell = 50 * time.Millisecond
	grace    = 2 * time.Millisecond
)

// flush waits until the sandbox has read all data, within farewell.
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

// release closes the descriptor, after shut and after the last read. Closing it with unread data
// would discard data that the sandbox has not read yet, including the resets of its connections.
func (p *port) release() { p.file.Close() }
