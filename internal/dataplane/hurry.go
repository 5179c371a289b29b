package dataplane

import (
	"io"
	"net/http"
	"time"
)

// dropTimeout is how long a body may take to come that nobody will read.
const dropTimeout = 5 * time.Second

// hurry bounds how long the rest of a request may take that is answered. The
// server reads it for the sake of the connection, and a client that never
// sends it would hold the connection for ever, without any key.
func hurry(w http.ResponseWriter) {
	// A writer without deadlines has no connection that could be held.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(dropTimeout))
}

// dropBody reads what is left of a request that was answered. In full duplex
// the server leaves that to the end of the request, when it has already
// stopped watching the connection: meeting the body's end there, it would
// begin to watch again and trip over itself at the next request. A body that
// does not end in time ends the connection, because the server would take
// what comes later for the next request: so requests are smuggled.
func dropBody(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	if err != nil && w.Header().Get("Connection") != "close" {
		panic(http.ErrAbortHandler)
	}
}
