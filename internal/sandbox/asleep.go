package sandbox

import (
	"context"
	"slices"

	"github.com/crannog/crannog/internal/fault"
)

// sleeping are the states out of which traffic may bring a sandbox back.
var sleeping = []State{Pausing, Paused, Resuming}

// Asleep returns a sandbox that does not run now and that resumes on traffic.
func (s *Service) Asleep(ctx context.Context, id string) (Sandbox, bool) {
	if !idPattern.MatchString(id) {
		return Sandbox{}, false
	}
	r, err := s.store.Get(ctx, id)
	if err != nil {
		if fault.KindOf(err) != fault.NotFound && ctx.Err() == nil {
			s.log.Warn("sandbox not looked up", "sandbox", id, "err", err)
		}
		return Sandbox{}, false
	}
	return r.Sandbox, r.asleep()
}

// AsleepAll calls yield for each sandbox that does not run now and that
// resumes on traffic, until it returns false.
func (s *Service) AsleepAll(ctx context.Context, yield func(Sandbox) bool) {
	rows, err := s.store.List(ctx, Query{Filter: Filter{States: sleeping}, AllOwners: true})
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("paused sandboxes not listed", "err", err)
		}
		return
	}
	for _, r := range rows {
		if r.asleep() && !yield(r.Sandbox) {
			return
		}
	}
}

// asleep leaves out what was paused without its memory: it would boot anew,
// and its owner is to decide that rather than any request.
func (r Record) asleep() bool {
	return r.OnEnd.Wake && !r.Saved.FilesOnly && slices.Contains(sleeping, r.State)
}
