package interpreter

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// preloadTimeout limits how long a worker may load libraries.
const preloadTimeout = time.Minute

// preloadListener waits until a worker has loaded its libraries, and discards their output.
type preloadListener struct{ done chan struct{} }

func (l *preloadListener) text(string, []byte) {}

func (l *preloadListener) message(m message) {
	if m.Type == "done" && m.N == 0 && l.done != nil {
		close(l.done)
		l.done = nil
	}
}

// maxPreloads limits how often a worker is started to load libraries.
const maxPreloads = 2

// Preload starts the worker of a language's default context, which then loads the usual libraries
// of the language, if they are installed. This does not change the context. Preload does nothing
// for a language that the sandbox does not have. A worker that ends, or is not ready in time on a
// busy host, is started once more, because otherwise the first execution would have to wait for it.
func (s *Server) Preload(ctx context.Context, language string) error {
	sess, err := s.byLanguage(language)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, preloadTimeout)
	defer cancel()
	if err := sess.acquire(ctx, func() time.Duration { return preloadTimeout }); err != nil {
		return err
	}
	defer sess.release()
	for attempt := 1; ; attempt++ {
		err := sess.preload(ctx)
		if fault.KindOf(err) == fault.Unsupported {
			return nil
		}
		if err == nil || attempt == maxPreloads || ctx.Err() != nil {
			return err
		}
		s.opts.Log.Warn("worker did not load its libraries; starting it again", "language", language, "err", err)
	}
}

// preload makes the worker load its libraries. The slot must be held.
func (x *session) preload(ctx context.Context) error {
	w, err := x.liveWorker(ctx)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	w.attach(&preloadListener{done})
	defer w.attach(nil)
	if err := w.send(request{Preload: 1}); err == nil {
		select {
		case <-done:
			return nil
		case <-w.exited:
		case <-ctx.Done():
		}
	}
	x.stop()
	return fault.Newf(fault.Unavailable, "worker_not_started", "The %s worker did not load its libraries.", x.lang.name)
}
