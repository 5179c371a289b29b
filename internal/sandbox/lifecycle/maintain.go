package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// maintainEvery is the interval at which this Service looks for changes by other processes, and
// retries failed operations.
const maintainEvery = 5 * time.Second

// maxStoppedRows limits the number of rows of stopped sandboxes, whatever their age, so that a
// client that creates and removes in a loop does not fill the disk. They are counted once in
// removeRounds.
const (
	maxStoppedRows = 10_000
	removeRounds   = 12
)

// maintain keeps this Service and the store consistent.
func (s *Service) maintain() {
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	for round := 0; ; round++ {
		select {
		case <-s.work.ctx.Done():
			return
		case <-ticker.C:
		}
		s.audit.Tick(s.work.ctx)
		if err := s.intake.Retry(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
			s.log.Warn("audit log not caught up", "err", err)
		}
		if err := s.reconciler.follow(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
			s.log.Warn("store not read", "err", err)
		}
		if round%removeRounds == 0 {
			if err := s.removeOldRows(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
				s.log.Warn("old rows not removed", "err", err)
			}
			if err := s.intake.CatchUp(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
				s.log.Warn("audit log not caught up", "err", err)
			}
			if err := s.repairAllPaused(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
				s.log.Warn("instances of paused sandboxes not removed", "err", err)
			}
			if err := s.reconciler.retrySilent(s.work.ctx); err != nil && s.work.ctx.Err() == nil {
				s.log.Warn("state not reconciled", "err", err)
			}
		}
		// The host may have been suspended, which timers do not notice.
		s.deadlines.checkAll()
	}
}

// removeOldRows removes rows of sandboxes that stopped long ago.
func (s *Service) removeOldRows(ctx context.Context) error {
	for _, q := range []sandbox.Query{
		{StoppedBefore: time.Now().Add(-s.settings.Retention)},
		{Filter: sandbox.Filter{States: []sandbox.State{sandbox.Stopped}}, Skip: maxStoppedRows},
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
