package proxy

import (
	"net"
	"sync"
)

// handover is the listener of a sandbox's HTTP server. It receives connections after the decision
// about their first bytes.
type handover struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), done: make(chan struct{})}
}

// offer passes a connection to the server. It returns false after Close.
func (h *handover) offer(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// Accept returns the next connection.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and offer.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr returns no address, because there is no socket.
func (h *handover) Addr() net.Addr { return &net.TCPAddr{} }
