package relay

import (
	"errors"
	"net"
	"os"
	"time"
)

// pipes adapts two non-blocking pipes to net.Conn. Unlike a socket, a pipe of a sandbox's kernel
// can still be used after the sandbox is restored, because the new kernel's pipe replaces it.
type pipes struct{ read, write *os.File }

func (p *pipes) Read(b []byte) (int, error)  { return p.read.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.write.Write(b) }

func (p *pipes) Close() error { return errors.Join(p.read.Close(), p.write.Close()) }

func (p *pipes) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

func (p *pipes) SetReadDeadline(t time.Time) error  { return p.read.SetReadDeadline(t) }
func (p *pipes) SetWriteDeadline(t time.Time) error { return p.write.SetWriteDeadline(t) }

func (p *pipes) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "pipe"} }
func (p *pipes) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "pipe"} }
