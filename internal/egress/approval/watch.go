package approval

import (
	"context"
	"fmt"
	"slices"
)

// FromNow, as the number of the last seen event, starts a watch with the open requests.
const FromNow int64 = -1

// Watch calls each for every event after the number after that the caller may see, oldest first. It
// waits for more until each returns an error, or until ctx ends or the service closes; in the last
// two cases it returns nil. With FromNow it first reports every open request as an event; a
// concurrent change may be reported twice. Only the last of these events has a number, so that a
// client that is disconnected between them starts over.
func (s *Service) Watch(ctx context.Context, caller Caller, q Query, after int64, each func(Event) error) error {
	q, ok := scope(caller, q)
	if !ok {
		return Unknown("")
	}
	turn, done := s.pulse.join()
	defer done()
	last, err := s.sweep(ctx)
	if err != nil {
		return err
	}
	if after == FromNow {
		if err := s.reportOpen(ctx, q, last, each); err != nil {
			return err
		}
		after = last
	}
	// Numbers only grow, so a larger number is from a store that was removed.
	after = min(after, last)
	for {
		events, err := s.o.Store.ApprovalEvents(ctx, q, after)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("watch approvals: %w", err)
		}
		for _, e := range events {
			if err := each(e); err != nil {
				return err
			}
			after = e.Seq
		}
		if len(events) == 0 && !turn.wait(ctx) {
			return nil
		}
	}
}

func (s *Service) reportOpen(ctx context.Context, q Query, last int64, each func(Event) error) error {
	q.States = []State{Pending, Approved}
	open, err := s.o.Store.Approvals(ctx, q)
	if err != nil {
		return fmt.Errorf("watch approvals: %w", err)
	}
	for i, a := range slices.Backward(open) {
		e := Event{Type: string(a.State), Approval: a}
		if i == 0 {
			e.Seq = last
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}
