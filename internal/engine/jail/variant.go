package jail

import (
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
)

// Variant configures an engine whose sandboxes are jails without a network interface, and whose guest
// runs programs differently.
type Variant struct {
	Name     string // also the name of its directory in the state directory
	Version  string
	Boundary engine.Boundary
	Images   []engine.ImageKind
	// Proxy is set if sandboxes can be connected to the egress gateway by a proxy.
	Proxy bool
	Notes []string
	// Arguments returns additional arguments of the guest.
	Arguments func(engine.Spec) ([]string, error)
	// Serve answers requests of one sandbox's guest on a socket that programs in the sandbox cannot
	// use. It returns when the guest has ended, or after the sandbox was removed.
	Serve func(*net.UnixConn)
}

// declare replaces the engine's description by that of the variant.
func (v *Variant) declare(info *engine.Info) {
	info.Name, info.Version, info.Boundary = v.Name, v.Version, v.Boundary
	info.Volumes = false
	info.Images, info.Egress, info.Notes = slices.Clone(v.Images), v.egressKinds(), slices.Clone(v.Notes)
}

// egressKinds returns how sandboxes can be connected to the egress gateway.
func (v *Variant) egressKinds() []engine.EgressKind {
	if v.Proxy {
		return slices.Clone(withProxy)
	}
	return slices.Clone(noEgress)
}

// name returns the engine's name.
func (e *Engine) name() string {
	if e.variant != nil {
		return e.variant.Name
	}
	return "jail"
}

// arguments returns the additional arguments of the guest.
func (e *Engine) arguments(spec engine.Spec) ([]string, error) {
	if e.variant == nil {
		return nil, nil
	}
	return e.variant.Arguments(spec)
}

// serve starts Serve and returns the guest's end of the socket.
func (v *Variant) serve() (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ourEnd, guestEnd := os.NewFile(uintptr(fds[0]), "service"), os.NewFile(uintptr(fds[1]), "service")
	defer ourEnd.Close()
	conn, err := net.FileConn(ourEnd)
	if err != nil {
		guestEnd.Close()
		return nil, err
	}
	go func() {
		defer conn.Close()
		v.Serve(conn.(*net.UnixConn)) //nolint:forcetypeassert // the socket was created as a Unix socket above
	}()
	return guestEnd, nil
}
