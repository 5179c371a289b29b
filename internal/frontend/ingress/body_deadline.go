package ingress

import (
	"net/http"
	"time"
)

// dropTimeout bounds the time for discarding the rest of a body.
const dropTimeout = 5 * time.Second

// limitUnreadBody bounds the time for the rest of the body of an answered request. The server reads
// the rest to reuse the connection. Without the bound, a client could hold the connection for ever
// by not sending the rest.
func limitUnreadBody(w http.ResponseWriter) {
	// Without deadlines there is no connection that the client could hold.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(dropTimeout))
}
