package process

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
)

// Handler serves the service below the path that it returns.
func (s *Service) Handler(options ...connect.HandlerOption) (string, http.Handler) {
	path, next := processpbconnect.NewProcessHandler(s, options...)
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := &answer{ResponseWriter: w}
		next.ServeHTTP(own, r.WithContext(context.WithValue(r.Context(), answerKey{}, own)))
		// A client that is gone has no use for the rest.
		_ = own.spill()
	})
}

type answerKey struct{}

// answer is a stream whose last event goes out together with its end, and whose
// other events go out together with those that wait behind them. Each was three
// writes, and each write wakes the other side.
type answer struct {
	http.ResponseWriter
	more bool   // another event is about to be sent, or the end
	held []byte // not yet written, while there is more
}

// mostHeld is how much is written at once.
const mostHeld = 128 << 10

// answerOf returns the answer of a request, or nil if it is served without Handler.
func answerOf(ctx context.Context) *answer {
	own, _ := ctx.Value(answerKey{}).(*answer)
	return own
}

// hold reports whether something follows at once on what is sent next.
func (a *answer) hold(more bool) {
	if a != nil {
		a.more = more
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if len(a.held) == 0 && !a.more {
		return a.ResponseWriter.Write(b)
	}
	a.held = append(a.held, b...)
	if len(a.held) < mostHeld {
		return len(b), nil
	}
	return len(b), a.spill()
}

// spill writes what is held.
func (a *answer) spill() error {
	if len(a.held) == 0 {
		return nil
	}
	_, err := a.ResponseWriter.Write(a.held)
	a.held = a.held[:0]
	return err
}

// Flush implements http.Flusher. What it holds back goes out with what follows,
// or when the handler returns, which it does at once.
func (a *answer) Flush() {
	if a.more || a.spill() != nil {
		return
	}
	// A client that is gone is seen by the next write.
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController find what this one hides.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
