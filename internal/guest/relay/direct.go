package relay

import (
	"context"
	"net"
)

// ServeDirect answers streams that come by a socket of the host's kernel, which loses no bytes
// and so needs no frames, until the listener fails.
func ServeDirect(l net.Listener, inside Inside) error {
	for {
		stream, err := l.Accept()
		if err != nil {
			return err
		}
		go serveStream(stream, inside)
	}
}

// DialDirect asks a guest that serves by ServeDirect for a port. The stream is the connection to
// it from then on, and is closed after an error. It returns ErrRefused for a port without a
// listener.
func DialDirect(ctx context.Context, stream net.Conn, port int) error {
	if err := ask(ctx, stream, port); err != nil {
		_ = stream.Close() // it failed already
		return err
	}
	return nil
}
