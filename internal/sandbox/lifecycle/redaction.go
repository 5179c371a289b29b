package lifecycle

import (
	"context"

	"github.com/crannog/crannog/internal/sandbox"
)

// Redactor returns the redactor of a running sandbox. For a sandbox that an earlier process
// created, the values are resolved again at the first request.
func (s *Service) Redactor(ctx context.Context, id string) (*sandbox.Redactor, error) {
	if m := s.access.Redactor(id); m != nil {
		return m, nil
	}
	if _, ok := s.Live(id); !ok {
		return nil, s.notRunningHere(ctx, id, nil)
	}
	unlock, err := s.operations.locks.acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.State != sandbox.Running {
		return nil, instanceReplaced(r, nil)
	}
	if err := s.access.Recall(ctx, r); err != nil {
		return nil, s.access.Unavailable(id, err)
	}
	if m := s.access.Redactor(id); m != nil {
		return m, nil
	}
	return nil, s.notRunningHere(ctx, id, nil)
}

// adoptPolicy adopts a policy that another process has put into force.
func (s *Service) adoptPolicy(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || r.State != sandbox.Running {
		return ignoreUnknown(err)
	}
	p, err := s.access.ReloadRedactor(ctx, r)
	if err != nil {
		return err
	}
	s.live.renew(r)
	s.access.RelaxRedaction(id, p)
	return nil
}
