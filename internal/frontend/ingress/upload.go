package ingress

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// upload is the body of a request. The transport and the server both wait for a pending read of it
// before they return. If the sandbox ends, a client that sends no more would block them, so reads
// then fail.
//
// After the whole request has arrived, its body is no longer read, and the server already waits for
// the next request on the connection. Failing that read would end the connection during a request
// that may be for another sandbox.
type upload struct {
	io.ReadCloser
	complete    atomic.Bool
	interrupted atomic.Bool
}

func uploadOf(r *http.Request) *upload {
	u := &upload{ReadCloser: r.Body}
	u.complete.Store(r.Body == http.NoBody)
	return u
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		u.complete.Store(true)
	}
	return n, err
}

// interrupt makes pending and later reads fail.
func (u *upload) interrupt(rc *http.ResponseController) {
	if !u.complete.Load() {
		u.interrupted.Store(true)
		failReads(rc)
	}
}

// drop reads the rest of an answered request. In full duplex the server would do this at the end of
// the request, when it has stopped watching the connection; it would then watch again and fail at
// the next request. If the body does not end in time, the connection is closed: otherwise the
// server would take later bytes for the next request, which is request smuggling. The same holds
// for an interrupted body, even if it has arrived completely.
func (u *upload) drop(w http.ResponseWriter) {
	_, err := io.Copy(io.Discard, u)
	if (err != nil || u.interrupted.Load()) && w.Header().Get("Connection") != "close" {
		panic(http.ErrAbortHandler)
	}
}
