package ingress

import (
	"net/http"
	"time"
)

// dropTimeout bounds the time for discarding the rest of a body.
const dropTimeout = 5 * time.Second

// boundRest bounds the time for the rest of an answered request. The server reads it to reuse the
// connection, and a client without any key could hold the connection for ever by not sending it.
func boundRest(w http.ResponseWriter) {
	// Without deadlines there is no connection that the client could hold.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(dropTimeout))
}
