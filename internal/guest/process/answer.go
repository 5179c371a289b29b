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
		writer := &batchedWriter{ResponseWriter: w}
		next.ServeHTTP(writer, r.WithContext(context.WithValue(r.Context(), resultKey{}, writer)))
		// An error means that the client has disconnected.
		_ = writer.flushHeld()
	})
}

type resultKey struct{}

// batchedWriter is a ResponseWriter that writes the last event together with the end of the stream,
// and other events together with those that are queued behind them. Without it, each event takes
// three writes, and each write wakes the peer.
type batchedWriter struct {
	http.ResponseWriter
	more bool   // another event or the end of the stream follows at once
	held []byte // data to write with the data that follows
}

// maxHeld is the maximum size of one write.
const maxHeld = 128 << 10

// resultOf returns the writer of a request, or nil if the request is not served by Handler.
func resultOf(ctx context.Context) *batchedWriter {
	writer, _ := ctx.Value(resultKey{}).(*batchedWriter)
	return writer
}

// setMore sets whether another event follows immediately after the next one.
func (a *batchedWriter) setMore(more bool) {
	if a != nil {
		a.more = more
	}
}

// Write implements http.ResponseWriter.
func (a *batchedWriter) Write(b []byte) (int, error) {
	if len(a.held) == 0 && !a.more {
		return a.ResponseWriter.Write(b)
	}
	a.held = append(a.held, b...)
	if len(a.held) < maxHeld {
		return len(b), nil
	}
	return len(b), a.flushHeld()
}

// flushHeld writes the held data.
func (a *batchedWriter) flushHeld() error {
	if len(a.held) == 0 {
		return nil
	}
	_, err := a.ResponseWriter.Write(a.held)
	a.held = a.held[:0]
	return err
}

// Flush implements http.Flusher. Held data is written with the data that follows, or when the
// handler returns.
func (a *batchedWriter) Flush() {
	if a.more || a.flushHeld() != nil {
		return
	}
	// If the client has disconnected, the next write fails.
	_ = http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap gives http.ResponseController access to the methods of the wrapped writer.
func (a *batchedWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }
