package audited

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// Pause saves a running sandbox and ends its processes.
func (s *Service) Pause(ctx context.Context, caller sandbox.Principal, ref string, filesOnly bool) (sandbox.Sandbox, error) {
	ctx, a := s.begin(ctx, caller, "pause", ref)
	sb, err := s.Service.Pause(ctx, caller, ref, filesOnly)
	return sb, a.Finish(ctx, err)
}

// Resume resumes a paused sandbox for d.
func (s *Service) Resume(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error) {
	ctx, a := s.begin(ctx, caller, "resume", ref)
	sb, resumed, err := s.Service.Resume(ctx, caller, ref, d)
	return sb, resumed, a.Finish(ctx, err)
}

// ResumeFiles boots a paused sandbox again from its files, without its memory.
func (s *Service) ResumeFiles(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error) {
	ctx, a := s.begin(ctx, caller, "resume", ref)
	sb, resumed, err := s.Service.ResumeFiles(ctx, caller, ref, d)
	return sb, resumed, a.Finish(ctx, err)
}

// Fork copies a running sandbox.
func (s *Service) Fork(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error) {
	ctx, a := s.begin(ctx, caller, "fork", ref)
	forks, err := s.Service.Fork(ctx, caller, ref, req)
	return forks, a.Commit(ctx, err)
}

// Rollback returns a sandbox to a snapshot.
func (s *Service) Rollback(ctx context.Context, caller sandbox.Principal, ref, snapshot string) (sandbox.Sandbox, error) {
	ctx, a := s.begin(ctx, caller, "rollback", ref)
	sb, err := s.Service.Rollback(ctx, caller, ref, snapshot)
	return sb, a.Finish(ctx, err)
}

// Reset returns a sandbox to its initial state.
func (s *Service) Reset(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	ctx, a := s.begin(ctx, caller, "reset", ref)
	sb, err := s.Service.Reset(ctx, caller, ref)
	return sb, a.Finish(ctx, err)
}

// Snapshot takes a snapshot of a running sandbox.
func (s *Service) Snapshot(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	ctx, a := s.begin(ctx, caller, "snapshot", ref)
	n, err := s.Service.Snapshot(ctx, caller, ref, req)
	return n, a.Finish(ctx, err)
}

// RemoveSnapshot removes a snapshot.
func (s *Service) RemoveSnapshot(ctx context.Context, caller sandbox.Principal, ref string) error {
	ctx, a := s.begin(ctx, caller, "snapshot.remove", ref)
	return a.Finish(ctx, s.Service.RemoveSnapshot(ctx, caller, ref))
}
