package guestmain

import (
	"net"
	"net/http"
	"sync"
)

// streams tracks the connections from outside, so that all can be closed at once while the
// listeners stay open.
type streams struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

// observe is the ConnState function of a server.
func (s *streams) observe(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.add(conn)
	case http.StateClosed, http.StateHijacked:
		s.remove(conn)
	case http.StateActive, http.StateIdle:
	}
}

func (s *streams) add(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[net.Conn]struct{}{}
	}
	s.open[conn] = struct{}{}
}

func (s *streams) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// cut closes all connections. The peers see a connection error.
func (s *streams) cut() {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for conn := range open {
		_ = conn.Close() // the connection is not used any more, so an error does not matter
	}
}

// trackingListener is a listener that adds its connections to streams.
type trackingListener struct {
	net.Listener
	streams *streams
}

// Accept implements net.Listener.
func (k trackingListener) Accept() (net.Conn, error) {
	conn, err := k.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, streams: k.streams}
	k.streams.add(tracked)
	return tracked, nil
}

// trackedConn is a connection that streams tracks until it is closed.
type trackedConn struct {
	net.Conn
	streams *streams
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.streams.remove(c)
	return c.Conn.Close()
}
