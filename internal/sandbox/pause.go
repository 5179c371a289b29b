package sandbox

import (
	"context"
	"time"
)

// Pause writes a running sandbox down and ends its processes.
func (s *Service) Pause(ctx context.Context, who Principal, ref string, filesOnly bool) (Sandbox, error) {
	if _, err := s.resolve(ctx, who, ref); err != nil {
		return Sandbox{}, err
	}
	_, err := s.checkpointer()
	return Sandbox{}, err
}

// Resume lets a paused sandbox go on.
func (s *Service) Resume(ctx context.Context, who Principal, ref string, d time.Duration) (Sandbox, bool, error) {
	if _, err := s.resolve(ctx, who, ref); err != nil {
		return Sandbox{}, false, err
	}
	_, err := s.checkpointer()
	return Sandbox{}, false, err
}

// Wake resumes a paused sandbox that resumes on traffic.
func (s *Service) Wake(_ context.Context, id string) (Sandbox, error) { return Sandbox{}, Unknown(id) }
