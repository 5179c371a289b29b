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

// hardCloser is a ResponseWriter that passes nothing on after the sandbox has ended. If its
// connection was taken over for another protocol, the connection is then reset: without HTTP
// framing, an orderly end would look like the program's own.
type hardCloser struct {
	http.ResponseWriter
	back     *backend
	redactor *sandbox.Redactor
}

// Write passes on output from before the sandbox ended. For a paused sandbox, only such output is
// part of its saved state. With later output, clients would rely on actions that are missing after
// a resume.
func (h *hardCloser) Write(p []byte) (int, error) {
	if h.back.hasEnded() {
		panic(http.ErrAbortHandler)
	}
	return h.ResponseWriter.Write(p)
}

// WriteHeader redacts informational (1xx) headers. The answer's own headers are redacted already.
func (h *hardCloser) WriteHeader(status int) {
	if status < http.StatusOK {
		redaction.Header(h.Header(), h.redactor)
	}
	h.ResponseWriter.WriteHeader(status)
}

// Unwrap gives http.ResponseController access to the underlying writer.
func (h *hardCloser) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Hijack takes the connection over.
func (h *hardCloser) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &hardConn{Conn: conn, back: h.back}, rw, nil
}

// hardConn resets the connection instead of closing it if the sandbox has ended.
type hardConn struct {
	net.Conn
	back *backend
}

// Write passes on output from before the sandbox ended.
func (c *hardConn) Write(p []byte) (int, error) {
	if c.back.hasEnded() {
		return 0, errGone
	}
	return c.Conn.Write(p)
}

// Close ends the connection.
func (c *hardConn) Close() error {
	if c.back.hasEnded() {
		reset(c.Conn)
	}
	return c.Conn.Close()
}

// CloseWrite passes on the end of the program's output.
func (c *hardConn) CloseWrite() error {
	if c.back.hasEnded() {
		return c.Close()
	}
	if halfCloser, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return halfCloser.CloseWrite()
	}
	return c.Conn.Close()
}

// reset makes the next Close send RST instead of FIN.
func reset(conn net.Conn) {
	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = tcp.SetLinger(0) // a closed connection needs none
	}
}

// failReads makes reads of the request fail from now on. The transport and the server both wait for
// a pending read of an upload, and a client that sends nothing more would keep them waiting.
func failReads(rc *http.ResponseController) {
	_ = rc.SetReadDeadline(time.Unix(1, 0)) // without deadlines there is no connection to wait for
}

// abortConnection is deferred around a request, and makes an incomplete answer recognisable. In
// HTTP/1.0 the end of the connection is the end of the answer, so the connection is reset. In later
// versions the last chunk is missing.
func abortConnection(back *backend, w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		rc := http.NewResponseController(w)
		if back.hasEnded() && !r.ProtoAtLeast(1, 1) {
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
