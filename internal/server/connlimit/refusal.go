package connlimit

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxRefusals limits how many refused connections are answered at the same time. Further ones
	// are closed without an answer, so that a flood costs little.
	maxRefusals = 64
	// refusalTimeout limits the time of such an answer. The answer waits until the client has sent
	// something, because clients treat an earlier answer as an error.
	refusalTimeout = time.Second
	maxHead        = 4 << 10 // bytes of a request that are read for the answer
)

// refuse closes a connection, after an answer if possible. It closes the connection at once if the
// connection uses a reserved descriptor or maxRefusals connections wait for an answer.
func (g *Guard) refuse(raw net.Conn, why *fault.Error) {
	g.mu.Lock()
	g.note(why)
	answer := why != errFiles && g.answering < maxRefusals
	if answer {
		g.answering++
	}
	g.mu.Unlock()
	if !answer {
		reset(raw)
		_ = raw.Close() // Nothing was sent, so nothing is lost if it fails.
		return
	}
	go func() {
		defer func() {
			g.mu.Lock()
			g.answering--
			g.mu.Unlock()
		}()
		if err := g.answer(raw, why); err != nil {
			g.Log.Debug("refused connection not answered", "err", err)
		}
		_ = raw.Close() // The connection is refused whether this succeeds or not.
	}()
}

// answer answers the first request of a connection.
func (g *Guard) answer(raw net.Conn, why *fault.Error) error {
	if err := raw.SetDeadline(time.Now().Add(refusalTimeout)); err != nil {
		return err
	}
	head := make([]byte, maxHead)
	n, err := raw.Read(head)
	if err != nil {
		return err
	}
	var answer response
	g.Answer(&answer, target(head[:n]), why)
	if _, err := raw.Write(answer.wire()); err != nil {
		return err
	}
	// Otherwise the kernel would reset the connection because of unread data, and the client might
	// lose the answer.
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, raw)
	}
	return err
}

// target returns the path in a request's first line, or "".
func target(head []byte) string {
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	fields := strings.Fields(string(line))
	if len(fields) != 3 || !strings.HasPrefix(fields[1], "/") {
		return ""
	}
	return fields[1]
}

// response is an http.ResponseWriter that collects the answer as bytes.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *response) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *response) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *response) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}

// wire returns the answer as it is sent.
func (r *response) wire() []byte {
	r.WriteHeader(http.StatusServiceUnavailable)
	r.Header().Set("Connection", "close")
	r.Header().Set("Content-Length", fmt.Sprint(r.body.Len()))
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", r.status, http.StatusText(r.status))
	_ = r.Header().Write(&b) // writing to a buffer cannot fail
	b.WriteString("\r\n")
	b.Write(r.body.Bytes())
	return b.Bytes()
}
