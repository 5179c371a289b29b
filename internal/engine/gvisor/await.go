package gvisor

import (
	"encoding/json"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
)

// Waiting for the end of a box goes through Go's poller. gVisor's own client
// and a plain poll would each hold a thread per box, and a server has
// hundreds of boxes that do nothing.

// awaitEnd returns when the process has ended.
func (p process) awaitEnd() {
	if !p.alive() {
		return
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	// The poller takes descriptors that do not block.
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	// The number may have changed hands between the look and the open.
	if !p.alive() {
		return
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
	})
}

// guestExit waits for the guest's end and returns its exit code, or nil if
// the kernel of the box went away without telling, which is what a crash, a
// kill from outside and a lack of memory look like.
func (b *box) guestExit() *int {
	conn, err := dialControl(b.rec.Socket)
	if err != nil {
		return nil
	}
	defer conn.Close()
	call := struct {
		Method string `json:"method"`
		Arg    string `json:"arg"`
	}{boot.ContMgrWait, b.rec.Kernel}
	if err := json.NewEncoder(conn).Encode(call); err != nil {
		return nil
	}
	var answer struct {
		Success bool            `json:"success"`
		Result  unix.WaitStatus `json:"result"`
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil || !answer.Success {
		return nil
	}
	code := answer.Result.ExitStatus()
	return &code
}

// dialControl opens a control socket for a call that waits in the poller.
func dialControl(socket string) (net.Conn, error) {
	address, done, err := controlAddress(socket)
	if err != nil {
		return nil, err
	}
	defer done()
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
}
