package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// errEnded is why a request of an ended session is cut.
var errEnded = errors.New("the session has ended")

// open are the requests that are under way, by session, so that none of them
// outlives it: a stream would otherwise show everything to somebody who was
// signed out.
type open struct {
	mu    sync.Mutex
	calls map[string]map[*call]struct{}
}

type call struct{ cancel context.CancelCauseFunc }

// begin notes a request, until done is called.
func (o *open) begin(ctx context.Context, id string) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{cancel}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls == nil {
		o.calls = map[string]map[*call]struct{}{}
	}
	if o.calls[id] == nil {
		o.calls[id] = map[*call]struct{}{}
	}
	o.calls[id][c] = struct{}{}
	return ctx, func() {
		cancel(nil)
		o.mu.Lock()
		defer o.mu.Unlock()
		if delete(o.calls[id], c); len(o.calls[id]) == 0 {
			delete(o.calls, id)
		}
	}
}

// end cuts a session's requests.
func (o *open) end(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.calls[id] {
		c.cancel(errEnded)
	}
}

func (o *open) endAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, calls := range o.calls {
		for c := range calls {
			c.cancel(errEnded)
		}
	}
}

// idleBody is how long an upload may stand still.
const idleBody = 30 * time.Second

// steady lets a body take as long as data keeps coming: the server bounds how long
// others may take in all.
func steady(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	in := *r
	in.Body = &steadyBody{r.Body, http.NewResponseController(w)}
	return &in
}

type steadyBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

// Read implements io.Reader.
func (b *steadyBody) Read(p []byte) (int, error) {
	// Where it cannot be set there is no connection that could be held.
	_ = b.rc.SetReadDeadline(time.Now().Add(idleBody))
	return b.ReadCloser.Read(p)
}
