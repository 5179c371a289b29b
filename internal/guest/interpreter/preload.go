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

// preloadTries limits how often a worker is started to load libraries.
const preloadTries = 2

// Preload starts the worker of a language's default context and lets it load the usual libraries of
// the language, if they are installed. The context shows no trace of it. A language that the
// sandbox does not have is skipped. A worker that ends, or is not ready in time on a busy host, is
// started once more: afterwards, the first execution would wait for it.
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
	for try := 1; ; try++ {
		err := sess.preload(ctx)
		if fault.KindOf(err) == fault.Unsupported {
			return nil
		}
		if err == nil || try == preloadTries || ctx.Err() != nil {
			return err
		}
		s.opts.Log.Warn("a worker did not load its libraries and is started again", "language", language, "err", err)
	}
}

// preload lets the worker load its libraries. The slot must be held.
func (x *session) preload(ctx context.Context) error {
	w, err := x.live(ctx)
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
	x.stop()
	return fault.Newf(fault.Unavailable, "worker_not_started", "The %s worker did not load its libraries.", x.lang.name)
}
