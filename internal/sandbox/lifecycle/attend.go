package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// attendEvery is how soon this Service sees what other processes changed, and
// how often what failed is tried again.
const attendEvery = 5 * time.Second

// keepStopped bounds the records of stopped sandboxes, whatever their age, so
// that a client that creates and removes in a loop does not fill the disk.
// They are counted once in retireRounds.
const (
	keepStopped  = 10_000
	retireRounds = 12
)

// attend keeps this Service and the store together.
func (s *Service) attend() {
	ticker := time.NewTicker(attendEvery)
	defer ticker.Stop()
	for round := 0; ; round++ {
		select {
		case <-s.work.ctx.Done():
			return
		case <-ticker.C:
		}
		s.audit.Tick(s.work.ctx)
		if err := s.intake.Retry(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
			s.log.Warn("record not caught up", "err", err)
		}
		if err := s.follow(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
			s.log.Warn("store not read", "err", err)
		}
		if round%retireRounds == 0 {
			if err := s.retire(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
				s.log.Warn("old records not dropped", "err", err)
			}
			if err := s.intake.CatchUp(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
				s.log.Warn("record not caught up", "err", err)
			}
			if err := s.sweepAllPaused(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
				s.log.Warn("machines of paused sandboxes not removed", "err", err)
			}
		}
		// The machine may have slept, which timers do not notice.
		s.deadlines.rouse()
	}
}

var liveStates = []sandbox.State{sandbox.Creating, sandbox.Waiting, sandbox.Running, sandbox.Pausing, sandbox.Resuming, sandbox.Stopping}

// unsettledRows returns the live rows, and those of paused sandboxes that should have
// ended with a process that is dead. No other code looks at the latter.
func (s *Service) unsettledRows(ctx context.Context) ([]sandbox.Row, error) {
	rows, err := s.store.List(ctx, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: liveStates}})
	if err != nil {
		return nil, err
	}
	paused, err := s.store.List(ctx, sandbox.Query{AllOwners: true, Ephemeral: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Paused}}})
	for _, r := range paused {
		if s.abandoned(r) {
			rows = append(rows, r)
		}
	}
	return rows, err
}

// follow takes over what other processes did and finishes what was left
// half done.
func (s *Service) follow(ctx context.Context) error {
	rows, err := s.unsettledRows(ctx)
	if err != nil {
		return err
	}
	seen := make(map[string]bool, len(rows))
	for _, r := range rows {
		seen[r.ID] = true
		if err := s.settle(ctx, r); err != nil {
			s.log.Warn("sandbox not settled", "sandbox", r.ID, "err", err)
		}
	}
	for _, b := range s.live.list() {
		if !seen[b.id] {
			if err := s.operations.locked(ctx, b.id, s.refresh); err != nil {
				s.log.Warn("sandbox not settled", "sandbox", b.id, "err", err)
			}
		}
	}
	return nil
}

// settle brings one live row and what this Service does about it together.
func (s *Service) settle(ctx context.Context, r sandbox.Row) error {
	switch {
	case !s.engines.served(r):
		return nil
	case s.abandoned(r):
		return s.operations.locked(ctx, r.ID, s.abandon)
	case r.State == sandbox.Stopping:
		return s.operations.locked(ctx, r.ID, s.finishEnd)
	case s.stranded(r):
		return s.operations.locked(ctx, r.ID, s.mend)
	case r.State != sandbox.Running:
		return nil
	}
	there, same, policyChanged := s.live.compare(r)
	if policyChanged {
		if err := s.operations.locked(ctx, r.ID, s.relearn); err != nil {
			return err
		}
	}
	switch {
	case !there:
		return ignoreUnknown(s.adopt(ctx, r.ID))
	case same:
		return nil
	}
	return s.operations.locked(ctx, r.ID, s.retell)
}

// abandoned reports whether the process is dead without which the row means
// nothing: the one that creates it, hands it out or holds it.
func (s *Service) abandoned(r sandbox.Row) bool {
	needs := r.State == sandbox.Creating || r.State == sandbox.Waiting || r.Ephemeral && r.State != sandbox.Stopped
	return needs && r.Process != s.self && !s.alive(r.Process)
}

// abandon removes a sandbox whose process is dead, and its record.
func (s *Service) abandon(ctx context.Context, id string) error {
	if _, err := s.end(ctx, id, sandbox.ReasonLost, time.Time{}); err != nil {
		return err
	}
	return s.erase(ctx, id)
}

// finishEnd finishes a removal that failed or whose process died.
func (s *Service) finishEnd(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || r.State != sandbox.Stopping {
		return ignoreUnknown(err)
	}
	return s.finish(ctx, id, time.Time{})
}

// retell takes over the row's end and gives it to the guest once more.
func (s *Service) retell(ctx context.Context, id string) error {
	if err := s.refresh(ctx, id); err != nil {
		return err
	}
	if r, owed := s.live.owed(id); owed {
		s.deadlines.tell(ctx, r)
	}
	return nil
}

// retire drops records of sandboxes that stopped long ago.
func (s *Service) retire(ctx context.Context) error {
	for _, q := range []sandbox.Query{
		{StoppedBefore: time.Now().Add(-s.settings.Retention)},
		{Filter: sandbox.Filter{States: []sandbox.State{sandbox.Stopped}}, Skip: keepStopped},
	} {
		q.AllOwners = true
		old, err := s.store.List(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range old {
			if err := s.erase(ctx, r.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func isUnknown(err error) bool { return fault.KindOf(err) == fault.NotFound }

func ignoreUnknown(err error) error {
	if isUnknown(err) {
		return nil
	}
	return err
}
