package ingress

import (
	"context"
	"net/http"
)

// detach returns the request of a command that continues without its client. Once the command has
// begun to answer, the request's context outlives the client, so that the output is recorded for
// clients that request it later. The end of the sandbox ends the context.
func (t *trip) detach(ctx context.Context, in *http.Request) *http.Request {
	if !t.visit.Lasts() {
		return in
	}
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	gone := context.AfterFunc(t.back.ctx, func() { end(errGone) })
	left := context.AfterFunc(ctx, func() {
		if !t.visit.Began() {
			end(context.Cause(ctx))
		}
	})
	t.visit.AtEnd(func() {
		gone()
		left()
		end(nil)
	})
	return in.WithContext(life)
}
