package modules

import (
	"context"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/relay"
)

// connect gives the runner a socket over which its module reaches the egress gateway. The runner may
// use no other socket. Without a network it gets none.
func (r *Runner) connect(start *Start) error {
	if r.Gateway == nil {
		return nil
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "network")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		unix.Close(pair[1])
		return err
	}
	start.Files = append(start.Files, os.NewFile(uintptr(pair[1]), "network"))
	start.Argv = append(start.Argv, "--network")
	go r.carry(conn)
	return nil
}

// carry connects the streams of a runner to the gateway until the runner ends. The runner sends one
// byte first if its module makes requests. A module may have taken over the runner, so this end
// bounds what it accepts, as the host does for a guest.
func (r *Runner) carry(conn net.Conn) {
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		_ = conn.Close() // the module makes no requests
		return
	}
	session, err := relay.NewInward(context.Background(), conn)
	if err != nil {
		return // the runner has ended, or does not keep to the protocol; its requests fail
	}
	session.Serve(r.Gateway)
}
