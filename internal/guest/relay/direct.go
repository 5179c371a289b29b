package relay

import (
	"context"
	"net"
)

// ServeDirect answers streams that arrive through a socket of the host's kernel, until the listener
// fails. Such a socket loses no bytes, so no frames are needed.
func ServeDirect(l net.Listener, inside Inside) error {
	for {
		stream, err := l.Accept()
		if err != nil {
			return err
		}
		go serveStream(stream, inside)
	}
}

// DialDirect requests a port from a guest that uses ServeDirect. The stream then is the connection
// to this port. After an error the stream is closed. DialDirect returns ErrRefused for a port
// without a listener.
func DialDirect(ctx context.Context, stream net.Conn, port int) error {
	if err := handshake(ctx, stream, port); err != nil {
		_ = stream.Close() // err has the reason
		return err
	}
	return nil
}
