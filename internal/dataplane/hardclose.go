package dataplane

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/masking"
	"github.com/crannog/crannog/internal/sandbox"
)

// hardCloser is a ResponseWriter whose connection, once it is taken over for
// another protocol, is reset when the sandbox goes. Such a connection has no
// framing of ours, so an orderly end would look like the program's own.
type hardCloser struct {
	http.ResponseWriter
	gone context.Context
	mask *sandbox.Mask
}

// WriteHeader masks what comes ahead of an answer. The answer's own headers
// are masked already.
func (h *hardCloser) WriteHeader(status int) {
	if status < http.StatusOK {
		masking.Header(h.Header(), h.mask)
	}
	h.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach what the writer below can do.
func (h *hardCloser) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Hijack takes the connection over.
func (h *hardCloser) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &hardConn{Conn: conn, gone: h.gone}, rw, nil
}

// hardConn resets instead of closing if the sandbox is gone.
type hardConn struct {
	net.Conn
	gone context.Context
}

// Close ends the connection.
func (c *hardConn) Close() error {
	if c.gone.Err() != nil {
		reset(c.Conn)
	}
	return c.Conn.Close()
}

// CloseWrite passes on that the program inside has said all.
func (c *hardConn) CloseWrite() error {
	if c.gone.Err() != nil {
		return c.Close()
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}

// reset lets the next Close send RST instead of FIN.
func reset(conn net.Conn) {
	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // a connection that is closed already needs none
	}
}

// interrupt fails reads of the request from here on. The transport and the
// server both wait for a pending read of an upload before they let go, and a
// client that sends no more would keep them waiting.
func interrupt(rc *http.ResponseController) {
	_ = rc.SetReadDeadline(time.Unix(1, 0)) // a writer without deadlines has no connection to wait for
}

// breakOff is deferred around a request. The end of the connection is the
// end of an HTTP/1.0 answer, so breaking one off takes a reset; in later
// versions a missing last chunk tells.
func breakOff(gone context.Context, w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		rc := http.NewResponseController(w)
		if gone.Err() != nil && !r.ProtoAtLeast(1, 1) {
			if conn, _, err := rc.Hijack(); err == nil {
				reset(conn)
				_ = conn.Close() // it is reset either way
				return
			}
		}
		interrupt(rc)
	}
	panic(v)
}
