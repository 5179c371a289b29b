package attachment

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
)

// Kind is how a sandbox's traffic reaches the gateway. The engine that starts the sandbox
// determines the kind.
type Kind = egress.AttachmentKind

// The kinds that Open supports.
const (
	Packets  = egress.Packets
	Tap      = egress.Tap
	Ethernet = egress.Ethernet
	Proxy    = egress.Proxy
)

// Attachment is the gateway's end of one sandbox's network, of any kind.
type Attachment interface {
	// Close resets every connection. When it returns, only the handler's own calls are left, whose
	// connections then fail.
	Close() error
	// Done is closed when the attachment has ended for any reason.
	Done() <-chan struct{}
	// Counts returns the attachment's counters.
	Counts() Counts
}

// Open serves the attachment whose gateway end is ours, until Close is called or the sandbox's end
// is closed. It takes ownership of ours, and closes it even after an error.
//
// Packets, and Ethernet over a stream or a packet socket, end when the sandbox closes its end. The
// device of a Tap, or of Ethernet, lives as long as ours and keeps its network namespace alive. A
// datagram socket does not report that its peer is closed. The socket of a Proxy listens as long as
// ours is open. For these, the engine must detach the sandbox when it has ended.
func Open(kind Kind, ours *os.File, h Handler, o Options) (Attachment, error) {
	switch kind {
	case Packets, Tap, Ethernet:
		p, err := newPort(kind, ours)
		if err != nil {
			return nil, err
		}
		return serve(p, h, o)
	case Proxy:
		p, err := newProxy(ours, h, o)
		if err != nil {
			return nil, err
		}
		return p, nil
	default:
		ours.Close()
		return nil, fmt.Errorf("attachment: there is no kind %q", kind)
	}
}

// serve starts a Link. If that fails, it returns a nil Attachment, and not an interface that holds
// a nil pointer.
func serve(p *port, h Handler, o Options) (Attachment, error) {
	l, err := newPacketLink(p, h, o)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Pair returns the two ends of an attachment: the sandbox's, for the engine, and the gateway's, for
// Open. Ethernet uses a stream, because a stream ends with its peer; QEMU accepts it with -netdev
// stream,addr.type=fd. There is no pair for a Tap, because NewTap creates it inside the sandbox's
// network namespace.
func Pair(kind Kind) (peer, ours *os.File, err error) {
	switch kind {
	case Packets:
		return socketPair(unix.SOCK_SEQPACKET)
	case Ethernet:
		return socketPair(unix.SOCK_STREAM)
	default:
		return nil, nil, fmt.Errorf("attachment: there is no kind %q", kind)
	}
}

func socketPair(form int) (peer, ours *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, form|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range fds {
		widen(fd)
	}
	return os.NewFile(uintptr(fds[0]), "link-box"), os.NewFile(uintptr(fds[1]), "link"), nil
}
