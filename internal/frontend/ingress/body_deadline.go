package ingress

import (
	"net/http"
	"time"
)

// dropTimeout bounds how long an unneeded body may take to arrive.
const dropTimeout = 5 * time.Second

// hurry bounds how long the rest of a request may take that is answered. The
// server reads it for the sake of the connection, and a client that never
// sends it would hold the connection for ever, without any key.
func hurry(w http.ResponseWriter) {
	// A writer without deadlines has no connection that could be held.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(dropTimeout))
}
