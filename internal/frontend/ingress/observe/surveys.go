package observe

import (
	"context"
	"sync"
	"time"
)

// surveyTimeout bounds one survey of a sandbox's files.
const surveyTimeout = time.Minute

// surveyDelay is how long after the end of a cell its files are surveyed. A survey blocks the
// kernel, and with it a cell that follows at once.
const surveyDelay = 100 * time.Millisecond

// surveys requests file surveys in the background, at most one at a time per sandbox. Cells that
// end during a survey share the next one.
type surveys struct {
	tap  *Tap
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	closed bool
	again  map[string]bool // sandboxes with a running survey, and whether another one is requested
}

func (s *surveys) start(t *Tap) {
	s.tap, s.again = t, map[string]bool{}
	s.ctx, s.stop = context.WithCancel(context.Background())
}

func (s *surveys) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.work.Wait()
}

// request requests a survey that begins after this call.
func (s *surveys) request(sandbox string) {
	if s.tap.Survey == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if _, runs := s.again[sandbox]; runs {
		s.again[sandbox] = true
		return
	}
	s.again[sandbox] = false
	s.work.Go(func() { s.run(sandbox) })
}

func (s *surveys) run(sandbox string) {
	for more := true; more; {
		select {
		case <-time.After(surveyDelay):
		case <-s.ctx.Done():
		}
		// All requests so far share the survey that begins now.
		s.mu.Lock()
		s.again[sandbox] = false
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, surveyTimeout)
		err := s.tap.Survey(ctx, sandbox)
		cancel()
		if err != nil && s.ctx.Err() == nil {
			s.tap.Log.Debug("files not surveyed", "sandbox", sandbox, "err", err)
		}
		s.mu.Lock()
		if more = s.again[sandbox] && !s.closed; !more {
			delete(s.again, sandbox)
		}
		s.mu.Unlock()
	}
}
