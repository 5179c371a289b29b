package ingress

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/frontend/ingress/redaction"
	"github.com/crannog/crannog/internal/sandbox"
)

// hardCloser is a ResponseWriter that passes nothing on from the moment on in
// which the sandbox goes, and whose connection, once it is taken over for
// another protocol, is then reset. Such a connection has no framing of ours,
// so an orderly end would look like the program's own.
type hardCloser struct {
	http.ResponseWriter
	back *backend
	mask *sandbox.Mask
}

// Write passes on what the sandbox said before it went. Of a sandbox that is
// paused this is what its saved state knows of: with anything later, its
// clients would take for done what it does not remember.
func (h *hardCloser) Write(p []byte) (int, error) {
	if h.back.left() {
		panic(http.ErrAbortHandler)
	}
	return h.ResponseWriter.Write(p)
}

// WriteHeader masks what comes ahead of an answer. The answer's own headers
// are masked already.
func (h *hardCloser) WriteHeader(status int) {
	if status < http.StatusOK {
		redaction.Header(h.Header(), h.mask)
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
	return &hardConn{Conn: conn, back: h.back}, rw, nil
}

// hardConn resets instead of closing if the sandbox is gone.
type hardConn struct {
	net.Conn
	back *backend
}

// Write passes on what the sandbox said before it went.
func (c *hardConn) Write(p []byte) (int, error) {
	if c.back.left() {
		return 0, errGone
	}
	return c.Conn.Write(p)
}

// Close ends the connection.
func (c *hardConn) Close() error {
	if c.back.left() {
		reset(c.Conn)
	}
	return c.Conn.Close()
}

// CloseWrite passes on that the program inside has said all.
func (c *hardConn) CloseWrite() error {
	if c.back.left() {
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

// failReads fails reads of the request from here on. The transport and the
// server both wait for a pending read of an upload before they let go, and a
// client that sends no more would keep them waiting.
func failReads(rc *http.ResponseController) {
	_ = rc.SetReadDeadline(time.Unix(1, 0)) // a writer without deadlines has no connection to wait for
}

// breakOff is deferred around a request. The end of the connection is the
// end of an HTTP/1.0 answer, so breaking one off takes a reset; in later
// versions a missing last chunk tells.
func breakOff(back *backend, w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		rc := http.NewResponseController(w)
		if back.left() && !r.ProtoAtLeast(1, 1) {
			if conn, _, err := rc.Hijack(); err == nil {
				reset(conn)
				_ = conn.Close() // it is reset either way
				return
			}
		}
		failReads(rc)
	}
	panic(v)
}
