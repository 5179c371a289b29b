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
	// places is how many refused connections may be told so at once; further ones
	// are closed without a word, so that telling costs a bounded amount.
	places = 64
	// tellWithin bounds how long one of them stays: until the client has sent
	// something, because clients take an answer before that for a fault.
	tellWithin = time.Second
	maxHead    = 4 << 10
)

// refuse ends a connection. One that holds a reserved descriptor, or comes
// when all places are taken, is closed at once.
func (g *Guard) refuse(raw net.Conn, why *fault.Error) {
	g.mu.Lock()
	g.note(why)
	tell := why != errFiles && g.answering < places
	if tell {
		g.answering++
	}
	g.mu.Unlock()
	if !tell {
		reset(raw)
		_ = raw.Close() // nothing was sent that could be lost
		return
	}
	go func() {
		defer func() {
			g.mu.Lock()
			g.answering--
			g.mu.Unlock()
		}()
		if err := g.tell(raw, why); err != nil {
			g.Log.Debug("refused connection not answered", "err", err)
		}
		_ = raw.Close() // it was refused either way
	}()
}

// tell answers the first request of a connection.
func (g *Guard) tell(raw net.Conn, why *fault.Error) error {
	if err := raw.SetDeadline(time.Now().Add(tellWithin)); err != nil {
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
	// Without this the kernel would reset the connection for what is unread, and
	// the client might lose the answer.
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, raw)
	}
	return err
}

// target returns the path that a request's first line names, or "".
func target(head []byte) string {
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	fields := strings.Fields(string(line))
	if len(fields) != 3 || !strings.HasPrefix(fields[1], "/") {
		return ""
	}
	return fields[1]
}

// response is an http.ResponseWriter whose answer is bytes.
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

func (r *response) wire() []byte {
	r.WriteHeader(http.StatusServiceUnavailable)
	r.Header().Set("Connection", "close")
	r.Header().Set("Content-Length", fmt.Sprint(r.body.Len()))
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", r.status, http.StatusText(r.status))
	_ = r.Header().Write(&b) // a buffer takes all
	b.WriteString("\r\n")
	b.Write(r.body.Bytes())
	return b.Bytes()
}
