package console

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// errEnded is the cause with which requests of an ended session are cancelled.
var errEnded = errors.New("the session has ended")

// openRequests contains the requests in progress, by session. They are canceled with their session.
// Otherwise an open stream would show data to a user who has signed out.
type openRequests struct {
	mu    sync.Mutex
	calls map[string]map[*call]struct{}
}

type call struct{ cancel context.CancelCauseFunc }

// begin registers a request, until done is called.
func (o *openRequests) begin(ctx context.Context, id string) (_ context.Context, done func()) {
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

// end cancels a session's requests.
func (o *openRequests) end(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.calls[id] {
		c.cancel(errEnded)
	}
}

func (o *openRequests) endAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, calls := range o.calls {
		for c := range calls {
			c.cancel(errEnded)
		}
	}
}

// maxBodyIdle bounds how long an upload may pause.
const maxBodyIdle = 30 * time.Second

// withIdleDeadline returns a request whose body may take any time while data arrives. For other
// bodies, the server bounds the total time.
func withIdleDeadline(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	in := *r
	in.Body = &idleDeadlineBody{r.Body, http.NewResponseController(w)}
	return &in
}

type idleDeadlineBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

// Read implements io.Reader.
func (b *idleDeadlineBody) Read(p []byte) (int, error) {
	// Without a deadline there is no connection that the client could hold.
	_ = b.rc.SetReadDeadline(time.Now().Add(maxBodyIdle))
	return b.ReadCloser.Read(p)
}
