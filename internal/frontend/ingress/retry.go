package ingress

import (
	"context"
	"net/http"
	"net/http/httptrace"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

// traceConnection returns the context of a request. If the request could be retried, the context
// records whether a connection was used.
func (t *trip) traceConnection(r *http.Request) context.Context {
	if !t.canRetry(r) {
		return r.Context()
	}
	return httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { t.sent = true },
	})
}

// canRetry reports whether a request whose sandbox has ended can be retried. No part of it may have
// been sent, and no part of its body that would be needed again may have been read. Calls to
// Crannog's own servers in the sandbox are excluded, because each has exactly one audit entry.
func (t *trip) canRetry(r *http.Request) bool {
	return !t.sent && (r.Body == nil || r.Body == http.NoBody) && t.port != guestboot.Port && t.port != guestboot.InterpreterPort
}
