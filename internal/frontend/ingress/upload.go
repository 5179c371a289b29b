package ingress

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// upload is the body of a request. The transport and the server both wait for a
// pending read of it before they return. A client that sends no more would keep them
// waiting when the sandbox goes, so reads fail then.
//
// After a request has come whole, its body is no longer read, and the server already
// waits for the next request on the connection. Failing that read would end the
// connection during a request that may be for another sandbox.
type upload struct {
	io.ReadCloser
	whole       atomic.Bool
	interrupted atomic.Bool
}

func uploadOf(r *http.Request) *upload {
	u := &upload{ReadCloser: r.Body}
	u.whole.Store(r.Body == http.NoBody)
	return u
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	n, err := u.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		u.whole.Store(true)
	}
	return n, err
}

// interrupt fails reads from here on, where there are any.
func (u *upload) interrupt(rc *http.ResponseController) {
	if !u.whole.Load() {
		u.interrupted.Store(true)
		failReads(rc)
	}
}

// drop reads what is left of a request that was answered. In full duplex
// the server leaves that to the end of the request, when it has already
// stopped watching the connection: meeting the body's end there, it would
// begin to watch again and trip over itself at the next request. A body that
// does not end in time ends the connection, because the server would take
// what comes later for the next request: so requests are smuggled. So does one
// that was interrupted, perhaps after it had come whole.
func (u *upload) drop(w http.ResponseWriter) {
	_, err := io.Copy(io.Discard, u)
	if (err != nil || u.interrupted.Load()) && w.Header().Get("Connection") != "close" {
		panic(http.ErrAbortHandler)
	}
}
