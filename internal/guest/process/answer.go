package process

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
)

// Handler returns the service's path and handler.
func (s *Service) Handler(options ...connect.HandlerOption) (string, http.Handler) {
	path, next := processpbconnect.NewProcessHandler(s, options...)
	return path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := &answer{ResponseWriter: w}
		next.ServeHTTP(own, r.WithContext(context.WithValue(r.Context(), resultKey{}, own)))
		// An error means that the client has disconnected.
		_ = own.spill()
	})
}

type resultKey struct{}

// answer is a ResponseWriter that writes the last event together with the end of the stream, and
// other events together with those that are queued behind them. Otherwise each event took three
// writes, and each write wakes the peer.
type answer struct {
	http.ResponseWriter
	more bool   // another event is about to be sent, or the end
	held []byte // not yet written, while there is more
}

// maxHeld is the maximum size of one write.
const maxHeld = 128 << 10

// resultOf returns the answer of a request, or nil if the request is not served by Handler.
func resultOf(ctx context.Context) *answer {
	own, _ := ctx.Value(resultKey{}).(*answer)
	return own
}

// hold sets whether another event follows immediately after the next one.
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
	if len(a.held) < maxHeld {
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

// Flush implements http.Flusher. Held data is written with the data that follows, or when the
// handler returns.
func (a *answer) Flush() {
	if a.more || a.spill() != nil {
		return
	}
	// If the client has disconnected, the next write fails.
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap gives http.ResponseController access to the methods of the wrapped writer.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
