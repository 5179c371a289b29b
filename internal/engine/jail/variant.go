package jail

import (
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// Variant is an engine whose sandboxes are jails without a network, and whose guest runs the
// sandbox's programs in another way.
type Variant struct {
	Name     string // also that of its directory in the state directory
	Version  string
	Boundary engine.Boundary
	Images   []engine.ImageKind
	Notes    []string
	// Arguments returns further arguments of the guest.
	Arguments func(engine.Spec) ([]string, error)
	// Serve answers the requests of one sandbox's guest on a socket that no program inside has. It
	// returns when the guest has ended, or after the sandbox was removed.
	Serve func(*net.UnixConn)
}

// declare changes what an engine declares to what holds for the variant.
func (v *Variant) declare(info *engine.Info) {
	info.Name, info.Version, info.Boundary = v.Name, v.Version, v.Boundary
	info.Images, info.Egress, info.Notes = slices.Clone(v.Images), slices.Clone(withTap[:1]), slices.Clone(v.Notes)
}

// name is the engine's name.
func (e *Engine) name() string {
	if e.variant != nil {
		return e.variant.Name
	}
	return "jail"
}

// arguments returns what the guest is told by the variant.
func (e *Engine) arguments(spec engine.Spec) ([]string, error) {
	if e.variant == nil {
		return nil, nil
	}
	return e.variant.Arguments(spec)
}

// serve lets the variant answer the guest, and returns the guest's end of the socket.
func (v *Variant) serve() (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "service"), os.NewFile(uintptr(fds[1]), "service")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, err
	}
	go func() {
		defer conn.Close()
		v.Serve(conn.(*net.UnixConn)) //nolint:forcetypeassert // it was made as one above
	}()
	return theirs, nil
}
