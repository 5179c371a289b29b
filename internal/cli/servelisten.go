package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/config"
)

// firstInherited is the first descriptor that systemd passes to a process (sd_listen_fds(3)).
const firstInherited = 3

// listener returns the socket that systemd has opened for this process, or opens one.
func (a serverVerbs) listener(ctx context.Context) (net.Listener, error) {
	inherited, err := a.inheritedSocket()
	if err != nil || inherited != nil {
		return inherited, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.config.HTTP.Listen)
	if err != nil {
		return nil, fail("listen on "+a.config.HTTP.Listen, err).hint("is another server running? --listen chooses another address")
	}
	return l, nil
}

// inheritedSocket returns the listening socket of socket activation, or nil without one. The
// variables are removed, so that no child takes them for its own.
func (a serverVerbs) inheritedSocket() (net.Listener, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	if pid != strconv.Itoa(os.Getpid()) || count == "" {
		return nil, nil
	}
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fail("use the socket of systemd", err)
		}
	}
	if count != "1" {
		return nil, fail("use the socket of systemd", invalid(codeSettings, errors.New("the unit passes "+count+" sockets"))).hint("one ListenStream= in crannog.socket")
	}
	// The file belongs to this function alone. net.FileListener makes a copy, which is closed when
	// a program is started.
	unix.CloseOnExec(firstInherited)
	file := os.NewFile(firstInherited, "LISTEN_FDS")
	l, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		return nil, fail("use the socket of systemd", err).hint("descriptor 3 must be a listening socket")
	}
	return l, a.checkInherited(l)
}

// checkInherited applies the rule about addresses that other machines can reach: crannog.socket, and
// not --listen, decides about the address.
func (a serverVerbs) checkInherited(l net.Listener) error {
	if l.Addr().Network() != "tcp" {
		return errors.Join(fail("use the socket of systemd", invalid(codeSettings, errors.New("it is not a TCP socket"))).
			hint("the server makes its local socket itself; ListenStream= in crannog.socket is an address and a port"), l.Close())
	}
	if !a.config.HTTP.Insecure && !config.Loopback(hostOf(l.Addr().String())) {
		return errors.Join(fail("use the socket of systemd", invalid(codeSettings, errors.New(l.Addr().String()+" can be reached from other machines, and there is no TLS"))).
			hint("let crannog.socket listen on 127.0.0.1 behind a proxy with TLS, or use --insecure"), l.Close())
	}
	return nil
}
