package gvisor

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
)

// Waiting for the end of a sandbox goes through Go's poller. gVisor's own client
// and a plain poll would each hold a thread per sandbox, and a server has
// hundreds of sandboxes that do nothing.

// awaitEnd returns when the process has ended. If that cannot be determined, it asks again:
// otherwise a program that has run out of descriptors would treat all its sandboxes as dead.
func (p process) awaitEnd() {
	for !p.ended() {
		time.Sleep(askAgain)
	}
}

// askAgain is the pause before a check without a result is repeated.
const askAgain = time.Second

// ended waits for the end of the process and reports whether it came. If it returns
// false, the process could not be waited for.
func (p process) ended() bool {
	fd, err := p.open()
	if err != nil {
		return errors.Is(err, errGone)
	}
	// The poller takes descriptors that do not block.
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = conn.Read(func(fd uintptr) bool { // alive decides below
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
	})
	return !p.alive()
}

// guestExit waits for the guest's end and returns its wait status, or nil if
// the sandbox's kernel ended without an answer, as after a crash, a kill from
// outside or a lack of memory.
func (b *box) guestExit() *unix.WaitStatus {
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
	return &answer.Result
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
