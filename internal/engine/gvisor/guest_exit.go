package gvisor

import (
	"encoding/json"
	"net"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/boot"
)

// guestExit waits for the guest's end and returns its wait status. It returns nil if the sandbox's
// kernel ended without an answer: it crashed, or was killed by a user or for lack of memory.
// guestExit waits in Go's poller. gVisor's own client would block a thread for each sandbox, and a
// server has hundreds of idle sandboxes.
func (b *instance) guestExit() *unix.WaitStatus {
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

// dialControl opens a connection to a control socket that waits in Go's poller.
func dialControl(socket string) (net.Conn, error) {
	address, done, err := controlAddress(socket)
	if err != nil {
		return nil, err
	}
	defer done()
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
}
