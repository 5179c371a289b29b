package sandbox

import "context"

// Fork copies a running sandbox.
func (s *Service) Fork(ctx context.Context, who Principal, ref string, req ForkRequest) ([]Fork, error) {
	if _, err := s.resolve(ctx, who, ref); err != nil {
		return nil, err
	}
	_, err := s.checkpointer()
	return nil, err
}

// Rollback puts a sandbox back to a snapshot.
func (s *Service) Rollback(ctx context.Context, who Principal, ref, snapshot string) (Sandbox, error) {
	if _, err := s.resolve(ctx, who, ref); err != nil {
		return Sandbox{}, err
	}
	_, err := s.checkpointer()
	return Sandbox{}, err
}

// Reset puts a sandbox back to its start.
func (s *Service) Reset(ctx context.Context, who Principal, ref string) (Sandbox, error) {
	if _, err := s.resolve(ctx, who, ref); err != nil {
		return Sandbox{}, err
	}
	_, err := s.checkpointer()
	return Sandbox{}, err
}
