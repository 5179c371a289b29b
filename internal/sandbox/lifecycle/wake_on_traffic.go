package lifecycle

import (
	"context"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// ResumesOnTraffic returns a sandbox that is not running but resumes on traffic.
func (s *Service) ResumesOnTraffic(ctx context.Context, id string) (sandbox.Sandbox, bool) {
	if !idPattern.MatchString(id) {
		return sandbox.Sandbox{}, false
	}
	r, err := s.store.Get(ctx, id)
	if err != nil {
		if fault.KindOf(err) != fault.NotFound && ctx.Err() == nil {
			s.log.Warn("sandbox not looked up", "sandbox", id, "err", err)
		}
		return sandbox.Sandbox{}, false
	}
	return r.Sandbox, r.WakesOnTraffic()
}

// AllResumingOnTraffic calls yield for each sandbox that is not running but resumes on traffic,
// until yield returns false.
func (s *Service) AllResumingOnTraffic(ctx context.Context, yield func(sandbox.Sandbox) bool) {
	rows, err := s.store.List(ctx, sandbox.Query{Filter: sandbox.Filter{States: sandbox.SuspendedStates}, AllOwners: true})
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("paused sandboxes not listed", "err", err)
		}
		return
	}
	for _, r := range rows {
		if r.WakesOnTraffic() && !yield(r.Sandbox) {
			return
		}
	}
}
