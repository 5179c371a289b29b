package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// waitRetry is the delay after a failed Wait.
const waitRetry = time.Second

// clockSlack is how far the clock inside may be ahead of the host's.
const clockSlack = time.Second

// track watches a running sandbox. It does nothing if the sandbox is watched already.
func (s *Service) track(r sandbox.Row) {
	e, err := s.engines.Of(r.Engine)
	if err != nil {
		return // a process that has the engine watches it
	}
	ctx, cancel := context.WithCancel(s.work.ctx)
	b := &liveSandbox{id: r.ID, row: r, gone: make(chan struct{}), cancel: cancel}
	if !s.live.add(b, func() bool { return s.work.start(func() { s.watch(ctx, e, b) }) }) {
		cancel()
		return
	}
	s.intake.Follow(r.ID)
	s.deadlines.checkAll()
}

// untrack stops watching a sandbox that is no longer running, so that proxies abort streams.
func (s *Service) untrack(id string) {
	s.live.remove(id)
	s.access.Forget(id) // without the lock under which it asks what is live
}

// watch waits for the end of a sandbox and processes it.
func (s *Service) watch(ctx context.Context, e engine.Engine, b *liveSandbox) {
	for {
		exit, err := e.Wait(ctx, b.id)
		switch {
		case ctx.Err() != nil:
			return
		case fault.KindOf(err) == fault.NotFound:
			s.ended(b, sandbox.ReasonLost, time.Now())
			return
		case err == nil:
			r, _ := s.live.current(b)
			s.ended(b, reason(r.EndAt, exit), exit.At)
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

// reason returns why a sandbox ended. If the guest ends it because its time is up, the engine only
// reports a plain exit.
func reason(end time.Time, exit engine.Exit) string {
	byItself := exit.Reason == engine.ReasonExited || exit.Reason == engine.ReasonKilled
	if byItself && !end.IsZero() && !exit.At.Before(end.Add(-clockSlack)) {
		return sandbox.ReasonTimeout
	}
	return string(exit.Reason)
}

// ended writes the end of a sandbox that stopped by itself, and frees its resources.
func (s *Service) ended(b *liveSandbox, reason string, at time.Time) {
	ctx, cancel := withoutCaller(s.work.ctx)
	defer cancel()
	unlock, err := s.operations.locks.acquire(ctx, b.id)
	if err != nil {
		s.log.Error("end of sandbox not written", "sandbox", b.id, "err", err)
		return
	}
	defer unlock()
	r, watched := s.live.current(b)
	if !watched {
		return // its end was processed
	}
	if err := s.endRun(ctx, b.id, r.Run, reason, at); err != nil {
		s.log.Error("end of sandbox not written", "sandbox", b.id, "err", err)
	}
}

// Live returns a running sandbox for routing. A sandbox that another process has just created is
// found in the store.
func (s *Service) Live(id string) (sandbox.Sandbox, bool) {
	if sb, ok := s.live.get(id); ok {
		return sb, true
	}
	if !idPattern.MatchString(id) {
		return sandbox.Sandbox{}, false
	}
	ctx, cancel := context.WithTimeout(s.work.ctx, 2*time.Second)
	defer cancel()
	if err := s.adopt(ctx, id); err != nil {
		if fault.KindOf(err) != fault.NotFound && ctx.Err() == nil {
			s.log.Warn("sandbox not looked up", "sandbox", id, "err", err)
		}
		return sandbox.Sandbox{}, false
	}
	return s.live.get(id)
}

// adopt watches a sandbox that runs according to the store.
func (s *Service) adopt(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || r.State != sandbox.Running {
		return err
	}
	unlock, err := s.operations.locks.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	// The row is read again, because the sandbox may have been removed while the lock was not held.
	if r, err = s.store.Get(ctx, id); err != nil || r.State != sandbox.Running {
		return err
	}
	s.track(r)
	return nil
}

// policyOf implements access.Deps.Known.
func (s *Service) policyOf(id string) (digest string, ok bool) {
	if b, r := s.live.find(id); b != nil {
		return r.PolicyDigest, true
	}
	return "", s.operations.running(id)
}

// LiveAll calls yield for each running sandbox until yield returns false.
func (s *Service) LiveAll(yield func(sandbox.Sandbox) bool) {
	for _, b := range s.live.list() {
		if sb, ok := s.live.get(b.id); ok && !yield(sb) {
			return
		}
	}
}

// Gone returns a channel that is closed when the sandbox stops.
func (s *Service) Gone(id string) <-chan struct{} {
	if b, _ := s.live.find(id); b != nil {
		return b.gone
	}
	return nil
}

// refresh adopts changes that another process made in a row. The lock of the ID must be held.
func (s *Service) refresh(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if isUnknown(err) || err == nil && r.State != sandbox.Running && r.State != sandbox.Waiting {
		s.untrack(id)
		return s.intake.Leave(id) // another process handles its end
	}
	if err != nil {
		return err
	}
	if s.live.refresh(r) {
		// Another process has replaced the instance. Streams into the old instance end, and its own
		// end is ignored.
		s.untrack(id)
		s.track(r)
	}
	s.deadlines.checkAll()
	return nil
}
