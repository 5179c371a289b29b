package server

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/internal/sandbox"
)

// whoKey carries a place where authenticate leaves who asks, so that the door
// can say who was turned away.
type whoKey struct{}

// answer is a response whose status is looked at.
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

// watched writes into the record which requests are turned away: without a
// key, with a wrong one, and with one that may not.
func (d *Server) watched(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request)) {
	var who sandbox.Principal
	a := &answer{ResponseWriter: w}
	defer func() {
		if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
			if who == (sandbox.Principal{}) {
				// An agent that shows its key where it opens nothing is known.
				if id, err := d.AgentKey(r); err == nil {
					who.KeyID = id
				}
			}
			code := "denied"
			if a.status == http.StatusUnauthorized {
				code = "unauthenticated"
			}
			d.Service.Refused(who.Actor(), r.Method+" "+r.URL.Path, code)
		}
	}()
	serve(a, r.WithContext(context.WithValue(r.Context(), whoKey{}, &who)))
}

// noteWho leaves who asks for watched.
func noteWho(ctx context.Context, who sandbox.Principal) {
	if place, ok := ctx.Value(whoKey{}).(*sandbox.Principal); ok {
		*place = who
	}
}
