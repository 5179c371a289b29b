package relay

import (
	"context"
	"io"
	"net"

	"github.com/hashicorp/yamux"
)

// A session over one reliable stream, such as the standard streams of a program that an engine
// starts inside, loses no bytes, has one host process, and ends with the stream. So it needs
// neither greetings nor frames.

// ServeStreams serves the guest's end of such a session until the stream ends.
func ServeStreams(stream io.ReadWriteCloser, inside Inside) error {
	session, err := yamux.Server(stream, sessionConfig())
	if err != nil {
		return err
	}
	serveSession(session, inside)
	return nil
}

// Streams is the host's end of such a session. It is safe for concurrent use.
type Streams struct {
	session *yamux.Session
	channel Channel // only for its method begin
}

// NewStreams starts a session over a stream and takes ownership of it.
func NewStreams(stream net.Conn) (*Streams, error) {
	session, err := yamux.Client(&joiner{Conn: &guard{Conn: stream}}, sessionConfig())
	if err != nil {
		_ = stream.Close() // err has the reason
		return nil, err
	}
	return &Streams{session: session, channel: Channel{openings: make(chan struct{}, openings)}}, nil
}

// Dial opens a stream to a port inside. It returns ErrRefused for a port without a listener.
func (s *Streams) Dial(ctx context.Context, port int) (net.Conn, error) {
	stream, err := s.channel.begin(ctx, s.session, port)
	if err != nil {
		return nil, err
	}
	if err := within(ctx, stream, func() error { return readAnswer(stream) }); err != nil {
		go func() { _ = stream.Close() }() // err has the reason, and closing may block
		return nil, err
	}
	return stream, nil
}

// Done is closed when no more streams can be opened.
func (s *Streams) Done() <-chan struct{} { return s.session.CloseChan() }

// Close ends all streams.
func (s *Streams) Close() error { return s.session.Close() }
