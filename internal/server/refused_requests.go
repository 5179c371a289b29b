package server

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/internal/sandbox"
)

// principalKey is the context key of a place in which authenticate stores the caller, so that the
// entry about a refused request can name the caller.
type principalKey struct{}

// answer is a response that records its status.
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

// watched writes entries about refused requests: those without a key, with a wrong key, and with a
// key that has no permission.
func (d *Server) watched(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request)) {
	var requester sandbox.Principal
	a := &answer{ResponseWriter: w}
	defer func() {
		if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
			if requester == (sandbox.Principal{}) {
				// If an agent's key has no permission here, the agent is still known.
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

// notePrincipal stores the caller for watched.
func notePrincipal(ctx context.Context, requester sandbox.Principal) {
	if place, ok := ctx.Value(principalKey{}).(*sandbox.Principal); ok {
		*place = requester
	}
}
