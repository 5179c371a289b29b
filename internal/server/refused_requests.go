package server

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/internal/sandbox"
)

// principalKey is the context key of a variable in which authenticate stores the caller. So the
// entry about a refused request can name the caller.
type principalKey struct{}

// answer is a response writer that remembers the status.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher, for streams.
func (a *answer) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// auditRefusals serves a request, and writes an entry if the request is refused because its key is
// missing or wrong or has no permission.
func (d *Server) auditRefusals(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request)) {
	var requester sandbox.Principal
	a := &answer{ResponseWriter: w}
	defer func() {
		if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
			if requester == (sandbox.Principal{}) {
				// A key for tools only has no permission here, but it identifies the agent.
				if id, err := d.AgentKey(r); err == nil {
					requester.KeyID = id
				}
			}
			code := "denied"
			if a.status == http.StatusUnauthorized {
				code = "unauthenticated"
			}
			d.Service.Refused(requester.Actor(), r.Method+" "+r.URL.Path, code)
		}
	}()
	serve(a, r.WithContext(context.WithValue(r.Context(), principalKey{}, &requester)))
}

// notePrincipal stores the caller for auditRefusals.
func notePrincipal(ctx context.Context, requester sandbox.Principal) {
	if caller, ok := ctx.Value(principalKey{}).(*sandbox.Principal); ok {
		*caller = requester
	}
}
