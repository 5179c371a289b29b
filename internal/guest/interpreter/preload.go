package interpreter

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// preloadTime limits how long a worker may load libraries.
const preloadTime = time.Minute

// loading waits until a worker has loaded its libraries, and discards their output.
type loading struct{ done chan struct{} }

func (l *loading) text(string, []byte) {}

func (l *loading) message(m message) {
	if m.Type == "done" && m.N == 0 && l.done != nil {
		close(l.done)
		l.done = nil
	}
}

// Preload starts the worker of a language's default context and loads the usual libraries of the
// language, if they are installed. The context's state does not change. If the sandbox lacks the
// language, Preload does nothing.
func (s *Server) Preload(ctx context.Context, language string) error {
	sess, err := s.byLanguage(language)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, preloadTime)
	defer cancel()
	if err := sess.acquire(ctx, func() time.Duration { return preloadTime }); err != nil {
		return err
	}
	defer sess.release()
	w, err := sess.live(ctx)
	if fault.KindOf(err) == fault.Unsupported {
		return nil
	}
	if err != nil {
		return err
	}
	done := make(chan struct{})
	w.attach(&loading{done})
	defer w.attach(nil)
	if err := w.send(request{Preload: 1}); err == nil {
		select {
		case <-done:
			return nil
		case <-w.exited:
		case <-ctx.Done():
		}
	}
	sess.stop()
	return fault.Newf(fault.Unavailable, "worker_not_started", "The %s worker did not load its libraries.", sess.lang.name)
}
