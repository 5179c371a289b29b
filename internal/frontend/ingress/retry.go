package ingress

import (
	"context"
	"net/http"
	"net/http/httptrace"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

// traced is the context of a request. It records whether a connection was used, if that matters.
func (t *trip) traced(r *http.Request) context.Context {
	if !t.mayWait(r) {
		return r.Context()
	}
	return httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { t.sent = true },
	})
}

// mayWait reports whether a request whose sandbox has ended can be retried. No part of it may have
// been sent, and no part of its body that would be needed again may have been read. Calls to
// Crannog's own servers in the sandbox are excluded, because each has exactly one audit entry.
func (t *trip) mayWait(r *http.Request) bool {
	return !t.sent && (r.Body == nil || r.Body == http.NoBody) && t.port != guestboot.Port && t.port != guestboot.InterpreterPort
}
