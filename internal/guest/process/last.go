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
		next.ServeHTTP(own, r.WithContext(context.WithValue(r.Context(), resultKey{}, own)))
		// A client that is gone has no use for the rest.
		_ = own.spill()
	})
}

type resultKey struct{}

// answer is a stream that writes its last event together with its end, and other events together
// with those that wait behind them. Otherwise each took three writes, and each write wakes the
// other side.
type answer struct {
	http.ResponseWriter
	more bool   // another event is about to be sent, or the end
	held []byte // not yet written, while there is more
}

// mostHeld is the most that one write has.
const mostHeld = 128 << 10

// resultOf returns the answer of a request, or nil if it is served without Handler.
func resultOf(ctx context.Context) *answer {
	own, _ := ctx.Value(resultKey{}).(*answer)
	return own
}

// hold sets whether more follows at once after the next event.
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

// spill writes the held data.
func (a *answer) spill() error {
	if len(a.held) == 0 {
		return nil
	}
	_, err := a.ResponseWriter.Write(a.held)
	a.held = a.held[:0]
	return err
}

// Flush implements http.Flusher. Held data is written with what follows, or when the handler
// returns, which it does at once.
func (a *answer) Flush() {
	if a.more || a.spill() != nil {
		return
	}
	// The next write notices a client that is gone.
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController find methods that this type hides.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
