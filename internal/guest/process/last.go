package process

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/gen/processpb/processpbconnect"
)

// Handler serves the service below the path that it returns.
func (s *Service) Handler(options ...connect.HandlerOption) (string, http.Handler) {
	path, next := processpbconnect.NewProcessHandler(s, options...)
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := &answer{ResponseWriter: w}
		next.ServeHTTP(own, r.WithContext(context.WithValue(r.Context(), answerKey{}, own)))
	})
}

type answerKey struct{}

// answer is a stream whose last event goes out together with its end. They
// were three writes, each of which wakes the other side.
type answer struct {
	http.ResponseWriter
	last bool
}

// lastOf returns what to call before the last event of the stream of ctx is sent.
func lastOf(ctx context.Context) func() {
	own, ok := ctx.Value(answerKey{}).(*answer)
	if !ok {
		return func() {} // served without Handler
	}
	return func() { own.last = true }
}

// Flush implements http.Flusher. What it holds back goes out when the handler
// returns, which it does at once.
func (a *answer) Flush() {
	if !a.last {
		// A client that is gone is seen by the next write.
		_ = http.NewResponseController(a.ResponseWriter).Flush()
	}
}

// Unwrap lets http.ResponseController find what this one hides.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
