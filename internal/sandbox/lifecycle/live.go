package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// waitRetry is how long a failed Wait rests before the next.
const waitRetry = time.Second

// clockSlack is how far the clock inside may be ahead of ours.
const clockSlack = time.Second

// box is a running sandbox that this Service watches.
type box struct {
	id     string
	gone   chan struct{} // closed when it stops
	cancel context.CancelFunc

	// Guarded by Service.mu.

	record sandbox.Row
	ending bool // the clock has begun to end it
	// notBefore is when the clock looks at it again, if that is later than its
	// end.
	notBefore time.Time
	owed      bool // the guest has not heard of the latest end
	samples   ring
}

// track watches a running sandbox; one that is watched already stays as it is.
func (s *Service) track(r sandbox.Row) {
	e, err := s.engines.Of(r.Engine)
	if err != nil {
		return // a process that has the engine watches it
	}
	ctx, cancel := context.WithCancel(s.ctx)
	b := &box{id: r.ID, record: r, gone: make(chan struct{}), cancel: cancel}
	s.mu.Lock()
	b.notBefore = s.put[r.ID].until
	if s.live[r.ID] != nil || s.ctx.Err() != nil {
		s.mu.Unlock()
		cancel()
		return
	}
	s.live[r.ID] = b
	s.loops.Go(func() { s.watch(ctx, e, b) })
	s.mu.Unlock()
	s.intake.Follow(r.ID)
	s.rouse()
}

// cut forgets a box and closes its channel, so that proxies abort streams.
func (s *Service) cut(id string) {
	defer s.access.Forget(id) // without the lock, under which it asks what is live
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.live[id]
	if b == nil {
		return
	}
	delete(s.live, id)
	close(b.gone)
	b.cancel()
}

// watch waits for the end of a box and records it.
func (s *Service) watch(ctx context.Context, e engine.Engine, b *box) {
	for {
		exit, err := e.Wait(ctx, b.id)
		switch {
		case ctx.Err() != nil:
			return
		case fault.KindOf(err) == fault.NotFound:
			s.ended(b, sandbox.ReasonLost, time.Now())
			return
		case err == nil:
			s.ended(b, s.reason(b, exit), exit.At)
			return
		}
		s.log.Warn("waiting for a sandbox failed", "sandbox", b.id, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(waitRetry):
		}
	}
}

// reason names what ended a box. The guest ends it by itself when its time is
// up, which to the engine is a plain exit.
func (s *Service) reason(b *box, exit engine.Exit) string {
	s.mu.RLock()
	end := b.record.EndAt
	s.mu.RUnlock()
	byItself := exit.Reason == engine.ReasonExited || exit.Reason == engine.ReasonKilled
	if byItself && !end.IsZero() && !exit.At.Before(end.Add(-clockSlack)) {
		return sandbox.ReasonTimeout
	}
	return string(exit.Reason)
}

// ended records a box that stopped without us, and frees what it held.
func (s *Service) ended(b *box, reason string, at time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), undoTimeout)
	defer cancel()
	unlock, err := s.locks.acquire(ctx, b.id)
	if err != nil {
		s.log.Error("end of sandbox not recorded", "sandbox", b.id, "err", err)
		return
	}
	defer unlock()
	s.mu.RLock()
	watched, run := s.live[b.id] == b, b.record.Run
	s.mu.RUnlock()
	if !watched {
		return // somebody else has seen to it
	}
	if err := s.endRun(ctx, b.id, run, reason, at); err != nil {
		s.log.Error("end of sandbox not recorded", "sandbox", b.id, "err", err)
	}
}

// Live returns a running sandbox for routing. One that another process made
// since we last looked is found in the store.
func (s *Service) Live(id string) (sandbox.Sandbox, bool) {
	if sb, ok := s.known(id); ok {
		return sb, true
	}
	if !idPattern.MatchString(id) {
		return sandbox.Sandbox{}, false
	}
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
	defer cancel()
	if err := s.adopt(ctx, id); err != nil {
		if fault.KindOf(err) != fault.NotFound && ctx.Err() == nil {
			s.log.Warn("sandbox not looked up", "sandbox", id, "err", err)
		}
		return sandbox.Sandbox{}, false
	}
	return s.known(id)
}

func (s *Service) known(id string) (sandbox.Sandbox, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if b := s.live[id]; b != nil {
		return b.record.Sandbox, true
	}
	return sandbox.Sandbox{}, false
}

// adopt watches a sandbox that runs according to the store.
func (s *Service) adopt(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || r.State != sandbox.Running {
		return err
	}
	unlock, err := s.locks.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	// Read again: without the lock, the sandbox may have been removed since.
	if r, err = s.store.Get(ctx, id); err != nil || r.State != sandbox.Running {
		return err
	}
	s.track(r)
	return nil
}

// policyOf implements access.Deps.Known.
func (s *Service) policyOf(id string) (digest string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if b := s.live[id]; b != nil {
		return b.record.PolicyDigest, true
	}
	return "", s.creating[id] != nil
}

// LiveAll calls yield for each running sandbox until it returns false.
func (s *Service) LiveAll(yield func(sandbox.Sandbox) bool) {
	for _, b := range s.boxes() {
		if sb, ok := s.known(b.id); ok && !yield(sb) {
			return
		}
	}
}

func (s *Service) boxes() []*box {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*box, 0, len(s.live))
	for _, b := range s.live {
		out = append(out, b)
	}
	return out
}

// Gone is closed when the sandbox stops.
func (s *Service) Gone(id string) <-chan struct{} {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if b := s.live[id]; b != nil {
		return b.gone
	}
	return nil
}
