package intake

import (
	"context"
	"errors"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Survey makes the engine write events about changed files. It is called before an instance ends.
// A failure does not prevent the end.
func (s *Service) Survey(ctx context.Context, id string) {
	if s.ingester == nil {
		return
	}
	r, err := s.deps.Rows.Get(ctx, id)
	if err != nil {
		return // without a row there is no events file either
	}
	o := s.deps.Observer(r.Engine)
	if o == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastEventsTimeout)
	defer cancel()
	err = o.Survey(ctx, id)
	if err == nil || isNotFound(err) { // the sandbox does not run any more
		return
	}
	s.deps.Log.Warn("changed files of a sandbox not surveyed", "sandbox", id, "err", err)
	s.deps.Audit.AppendAnyway(ctx, audit.Draft{Kind: audit.Gap, Sandbox: id, Actor: auditlog.Server, Data: ingest.Gap{Of: "events", Reason: "survey"}})
}

// Drain ingests the remaining events and reports whether it succeeded. Events that the audit log
// rejects stay in the files and are ingested later. With last, no more events will be written.
func (s *Service) Drain(ctx context.Context, id string, last bool) bool {
	if s.ingester == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastEventsTimeout)
	defer cancel()
	if err := errors.Join(s.ingester.Drain(ctx, id, last), s.ingester.Leave(id)); err != nil {
		s.deps.Log.Warn("events of a sandbox are not in the audit log yet", "sandbox", id, "err", err)
		s.pending.Store(true)
		return false
	}
	s.deps.Redactors.Release(id)
	return true
}

// End ingests the remaining events of a sandbox that is ending, and reports whether all of them
// were ingested. A warm sandbox that was never acquired has no owner, so the events of its programs
// are dropped.
func (s *Service) End(ctx context.Context, r sandbox.Row) (all bool, err error) {
	if r.State == sandbox.Waiting {
		return false, s.Remove(r.ID)
	}
	return r.ID != "" && s.Drain(ctx, r.ID, true), nil
}

// Forget removes a sandbox's files once all their events are in the audit log. CatchUp retries the
// rest.
func (s *Service) Forget(ctx context.Context, id string) error {
	if s.ingester == nil {
		return s.Remove(id)
	}
	if remaining, err := s.ingester.Has(id); err != nil || !remaining {
		return errors.Join(err, s.Remove(id))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastEventsTimeout)
	defer cancel()
	if err := s.ingester.Drain(ctx, id, true); err != nil {
		s.deps.Log.Warn("events of a sandbox are not in the audit log yet", "sandbox", id, "err", err)
		s.pending.Store(true)
		return s.ingester.Leave(id)
	}
	return s.Remove(id)
}

// Remove removes a sandbox's files.
func (s *Service) Remove(id string) error {
	var err error
	if s.ingester != nil {
		err = s.ingester.Remove(id)
	}
	if s.deps.Flows != nil {
		err = errors.Join(err, s.deps.Flows.Remove(id))
	}
	return err
}

// Retry calls CatchUp if events are known to remain.
func (s *Service) Retry(ctx context.Context) error {
	if !s.pending.Swap(false) {
		return nil
	}
	return s.CatchUp(ctx)
}

// CatchUp ingests the events of sandboxes that no goroutine follows, and removes the event files of
// sandboxes that no longer exist.
func (s *Service) CatchUp(ctx context.Context) error {
	if s.ingester == nil {
		return nil
	}
	ids, err := s.ingester.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if s.deps.Live(id) {
			continue
		}
		errs = append(errs, s.deps.Locked(ctx, id, s.catchUpOne))
	}
	return errors.Join(errs...)
}

func (s *Service) catchUpOne(ctx context.Context, id string) error {
	r, err := s.deps.Rows.Get(ctx, id)
	switch {
	case isNotFound(err):
		return s.Forget(ctx, id)
	case err != nil:
		return err
	case r.State == sandbox.Stopped || r.State == sandbox.Paused:
		if s.Drain(ctx, id, r.State == sandbox.Stopped) && r.State == sandbox.Stopped {
			return s.ingester.Remove(id)
		}
	}
	return nil
}

// RemoveEvents removes the events of an ended sandbox, all of which are in the audit log.
func (s *Service) RemoveEvents(id string) error {
	if s.ingester == nil {
		return nil
	}
	return s.ingester.Remove(id)
}

// Exclusive calls write while no other process ingests the events of a sandbox. The argument again
// is true if another process may have written the same entry before.
func (s *Service) Exclusive(ctx context.Context, id string, write func(again bool) error) error {
	if s.ingester == nil {
		return write(true)
	}
	limited, cancel := context.WithTimeout(ctx, lastEventsTimeout)
	defer cancel()
	err := s.ingester.Exclusive(limited, id, write)
	if leaveErr := s.ingester.Leave(id); leaveErr != nil {
		s.deps.Log.Warn("events not closed", "sandbox", id, "err", leaveErr)
	}
	if err != nil {
		// The disk is full, or the process that holds the file hangs. Ending the sandbox has
		// priority.
		s.deps.Log.Warn("end of sandbox written without exclusive access to its events", "sandbox", id, "err", err)
		return write(true)
	}
	return nil
}

// SweepFlows removes flow files of sandboxes that do not exist any more.
func (s *Service) SweepFlows(ctx context.Context) error {
	if s.deps.Flows == nil {
		return nil
	}
	return sandbox.Sweep(s.deps.Flows, func(id string) (bool, error) {
		if s.ingester != nil {
			// CatchUp removes it once it is in the audit log.
			if remaining, err := s.ingester.Has(id); err != nil || remaining {
				return true, err
			}
		}
		_, err := s.deps.Rows.Get(ctx, id)
		if isNotFound(err) {
			return false, nil
		}
		return true, err
	})
}

func isNotFound(err error) bool { return fault.KindOf(err) == fault.NotFound }
