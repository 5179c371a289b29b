package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// An outward session carries streams in the other direction: from a sandbox without a network
// interface to the egress gateway. It runs over one reliable stream, as sessions of ServeStreams
// do.

const (
	// halfClosed is how long a stream remains after one of its ends was closed. A program may end
	// its request before it reads the answer.
	halfClosed = 2 * time.Minute
	// maxOutward is the maximum number of streams of a session. A genuine guest has fewer. Each can
	// make the host store 256 KiB, so an attacker who is root inside could otherwise fill its
	// memory.
	maxOutward = 256
	// greetingTime is how long the host waits for a guest that has just been started.
	greetingTime = 30 * time.Second
)

func outwardConfig() *yamux.Config {
	c := sessionConfig()
	c.StreamCloseTimeout = halfClosed
	return c
}

// Outward is the guest's end of an outward session. It is safe for concurrent use.
type Outward struct{ session *yamux.Session }

// NewOutward starts the guest's end over a stream, which it takes ownership of.
func NewOutward(stream io.ReadWriteCloser) (*Outward, error) {
	session, err := yamux.Client(stream, outwardConfig())
	if err != nil {
		return nil, err
	}
	return &Outward{session}, nil
}

// Greet tells the host that the guest serves programs.
func (o *Outward) Greet() error {
	stream, err := o.session.OpenStream()
	if err != nil {
		return err
	}
	_, err = stream.Write([]byte{accepted})
	return errors.Join(err, stream.Close())
}

// Open opens a stream to the gateway.
func (o *Outward) Open() (*OutwardStream, error) {
	stream, err := o.session.OpenStream()
	if err != nil {
		return nil, err
	}
	return &OutwardStream{stream}, nil
}

// Done is closed when the session has ended.
func (o *Outward) Done() <-chan struct{} { return o.session.CloseChan() }

// OutwardStream is a stream of which each direction can end by itself.
type OutwardStream struct{ *yamux.Stream }

// CloseWrite ends the direction to the gateway.
func (s *OutwardStream) CloseWrite() error { return s.Stream.Close() }

// Close implements net.Conn. It unblocks a reader at once.
func (s *OutwardStream) Close() error {
	return errors.Join(s.SetReadDeadline(time.Unix(1, 0)), s.Stream.Close())
}

// Gateway is a connection to the egress gateway, of which each direction can end by itself.
type Gateway interface {
	net.Conn
	CloseWrite() error
}

// Inward is the host's end of an outward session.
type Inward struct {
	session *yamux.Session
	conn    net.Conn
}

// NewInward starts the host's end over a stream, which it takes ownership of. It returns when the
// guest serves programs.
func NewInward(ctx context.Context, stream net.Conn) (*Inward, error) {
	session, err := yamux.Server(&joiner{Conn: &guard{Conn: stream, opens: true}}, outwardConfig())
	if err != nil {
		_ = stream.Close() // err has the reason
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	i := &Inward{session: session, conn: stream}
	if err := i.awaitGreeting(ctx); err != nil {
		_ = session.Close() // err has the reason
		return nil, fmt.Errorf("the guest does not carry the network: %w", err)
	}
	return i, nil
}

func (i *Inward) awaitGreeting(ctx context.Context) error {
	opened, err := i.session.AcceptStreamWithContext(ctx)
	if err != nil {
		return err
	}
	defer opened.Close()
	return within(ctx, opened, func() error { return readAnswer(opened) })
}

// Serve connects each stream of the guest to the gateway, until the session ends.
func (i *Inward) Serve(connect func() (Gateway, error)) {
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		opened, err := i.session.AcceptStream()
		if err != nil {
			_ = i.session.Close() // it also closes the connection
			return
		}
		if i.session.NumStreams() > maxOutward {
			_ = i.session.Close() // a genuine guest does not do this
			return
		}
		streams.Go(func() { forward(&OutwardStream{opened}, connect) })
	}
}

// Close ends all streams.
func (i *Inward) Close() error { return i.session.Close() }

// forward copies between a stream of the guest and a new connection to the gateway.
func forward(stream *OutwardStream, connect func() (Gateway, error)) {
	defer stream.Close()
	gateway, err := connect()
	if err != nil {
		return // the program reads EOF
	}
	defer gateway.Close()
	var directions sync.WaitGroup
	directions.Go(func() {
		if _, err := io.Copy(onlyWriter{gateway}, onlyReader{stream}); err != nil {
			_ = gateway.Close() // the session has ended, or the gateway has closed the connection
			return
		}
		_ = gateway.CloseWrite() // it is closed below anyway
	})
	_, _ = io.Copy(onlyWriter{stream}, onlyReader{gateway}) // an error ends the stream in the same way
	_ = stream.CloseWrite()
	directions.Wait()
}
