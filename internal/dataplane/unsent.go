package dataplane

import (
	"context"
	"net/http"
	"net/http/httptrace"

	"github.com/crannog/crannog/internal/engine"
)

// traced is the context of a request that notes whether it had a connection, if
// that matters.
func (t *trip) traced(r *http.Request) context.Context {
	if !t.mayWait(r) {
		return r.Context()
	}
	return httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { t.sent = true },
	})
}

// mayWait tells whether a request whose sandbox has gone can be taken up again:
// nothing of it was sent, and nothing of it was read that would have to be read
// again. What is put on record of calls to our own servers is so once.
func (t *trip) mayWait(r *http.Request) bool {
	return !t.sent && (r.Body == nil || r.Body == http.NoBody) && t.port != engine.GuestPort && t.port != engine.InterpreterPort
}
