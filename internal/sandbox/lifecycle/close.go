package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// closeTimeout bounds how long Close waits to end one ephemeral sandbox when
// its own context has no deadline.
const closeTimeout = 30 * time.Second

// Close ends creations in progress and the ephemeral sandboxes of this Service, and stops watching
// the others, which continue. When it returns, all saved state is on the disk.
func (s *Service) Close(ctx context.Context) error {
	s.deadlines.awaitPauses(ctx)
	s.operations.close()
	s.pool.Load().Close()

	held := s.live.ephemeralIDs()
	errs := make([]error, len(held))
	var group sync.WaitGroup
	for i, id := range held {
		group.Go(func() { errs[i] = s.drop(ctx, id) })
	}
	group.Wait()
	s.work.close()
	s.states.Persist(ctx)
	s.live.release()
	errs = append(errs, s.intake.Close(ctx))
	s.audit.Tick(ctx)
	return errors.Join(errs...)
}

// drop ends a sandbox and removes its row.
func (s *Service) drop(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	unlock, err := s.operations.locks.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := s.end(ctx, id, sandbox.ReasonKilled, time.Time{}); err != nil {
		return err
	}
	return s.erase(ctx, id)
}

// erase removes the row of an ended sandbox. The audit log keeps its entries.
func (s *Service) erase(ctx context.Context, id string) error {
	if err := s.intake.Forget(ctx, id); err != nil {
		return err
	}
	if err := s.data.recordings.Drop(id); err != nil {
		return err
	}
	if err := s.store.Delete(ctx, id); err != nil {
		return err
	}
	s.operations.forget(id)
	s.live.forget(id)
	return nil
}

const codeShuttingDown = "shutting_down"

func shuttingDown() error {
	return fault.New(fault.Unavailable, codeShuttingDown, "the server is shutting down")
}
