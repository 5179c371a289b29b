package sshserver

import (
	"context"
	"errors"
	"io"
	"net"

	"golang.org/x/crypto/ssh"

	"github.com/crannog/crannog/internal/guest/connect"
)

// forward serves a connection of local forwarding (ssh -L, -D, -W). Only names of the sandbox's
// loopback interface are accepted, and the sandbox does not get the name at all: any other host
// would be reached from the sandbox without a decision about its name.
func (c *connection) forward(ctx context.Context, opened ssh.NewChannel) {
	var m struct {
		Host       string
		Port       uint32
		From       string
		OriginPort uint32
	}
	if ssh.Unmarshal(opened.ExtraData(), &m) != nil || m.Port == 0 || m.Port > 1<<16-1 {
		_ = opened.Reject(ssh.ConnectionFailed, "this is not a port")
		return
	}
	if !loopback(m.Host) {
		c.refuse("a forwarded connection to another host", reasonHost)
		_ = opened.Reject(ssh.Prohibited, reasonHost)
		return
	}
	channel, requests, err := opened.Accept()
	if err != nil {
		return // the client has left
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests)
	if err := Dial(ctx, c.server.Sandbox, int(m.Port), channel); err != nil && ctx.Err() == nil {
		c.server.Note("port %d of the sandbox: %v", m.Port, err)
	}
}

// loopback reports whether a host name means the sandbox itself.
func loopback(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// ErrPortClosed is returned by Dial if no server listens at the port.
var ErrPortClosed = errors.New("no server in the sandbox listens there")

// Dial connects a stream to a port of the sandbox's loopback interface and returns when the
// connection has ended. The caller closes the stream.
func Dial(ctx context.Context, sandbox Sandbox, port int, stream io.ReadWriter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, frames := io.Pipe()
	defer in.Close()
	go func() {
		if connect.Send(frames, stream) == nil {
			<-ctx.Done() // the end of the input would end the connection in both directions
		}
		_ = frames.Close() // never fails
	}()
	process, err := sandbox.Start(ctx, Command{Kind: Connect, Port: port, Stdin: in, Stdout: stream, Stderr: io.Discard})
	if err != nil {
		return err
	}
	exit, err := process.Wait()
	switch {
	case err != nil:
		return err
	case exit.Code == connect.ExitRefused:
		return ErrPortClosed
	}
	return nil
}

// Forward accepts connections and connects each to a port of the sandbox, until ctx ends. It then
// closes the listener and all connections. note reports connections that failed.
func Forward(ctx context.Context, sandbox Sandbox, listener net.Listener, port int, note func(error)) error {
	return accept(ctx, listener, maxChannels, func(ctx context.Context, conn net.Conn) {
		if err := Dial(ctx, sandbox, port, conn); err != nil && ctx.Err() == nil {
			note(err)
		}
	})
}
