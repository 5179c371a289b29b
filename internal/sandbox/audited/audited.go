// Package audited owns the audit entries of callers' requests: it executes each request and writes
// its entry.
package audited

import (
	"context"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// Service is a lifecycle.Service that writes audit entries: each request that changes something,
// and each refused request, gets one audit entry that names the caller. Requests that only read get
// none.
type Service struct {
	*lifecycle.Service
	log *auditlog.Log
}

// NewService wraps a lifecycle.Service that writes into the same audit log.
func NewService(d lifecycle.Deps) (*Service, error) {
	s, err := lifecycle.NewService(d)
	if err != nil {
		return nil, err
	}
	return &Service{s, d.Audit}, nil
}

// AuditLog returns the service's audit log. Requests that are not about sandboxes are written there
// too, so that one limit applies to all refused requests.
func (s *Service) AuditLog() *auditlog.Log { return s.log }

// Refused writes an entry for a request that was refused before it reached the service. The number
// of such entries per minute is limited.
func (s *Service) Refused(actor, what, outcome string) { s.log.Refused(actor, what, outcome) }

func (s *Service) begin(ctx context.Context, caller sandbox.Principal, name, ref string) (context.Context, *auditlog.Action) {
	return s.log.Begin(ctx, caller.Actor(), name, ref)
}

// Create creates a sandbox and returns when it is ready.
func (s *Service) Create(ctx context.Context, caller sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	ctx, a := s.begin(ctx, caller, auditlog.Create, req.Name)
	sb, err := s.Service.Create(ctx, caller, req)
	return sb, a.Commit(ctx, err)
}

// Remove ends a sandbox and keeps its row. For a sandbox that has ended or is paused, it also
// removes the row and all data.
func (s *Service) Remove(ctx context.Context, caller sandbox.Principal, ref string) error {
	ctx, a := s.begin(ctx, caller, "remove", ref)
	return a.Finish(ctx, s.Service.Remove(ctx, caller, ref))
}

// Forget ends a sandbox, if it runs, and removes its row.
func (s *Service) Forget(ctx context.Context, caller sandbox.Principal, ref string) error {
	ctx, a := s.begin(ctx, caller, "forget", ref)
	return a.Finish(ctx, s.Service.Forget(ctx, caller, ref))
}

// Prune removes ended sandboxes and unreferenced data.
func (s *Service) Prune(ctx context.Context, caller sandbox.Principal) (lifecycle.Pruned, error) {
	ctx, a := s.begin(ctx, caller, "prune", "")
	out, err := s.Service.Prune(ctx, caller)
	return out, a.Finish(ctx, err)
}

// SetTimeout sets a sandbox's end to d from now. Zero ends the sandbox now.
func (s *Service) SetTimeout(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, error) {
	ctx, a := s.begin(ctx, caller, "timeout", ref)
	sb, err := s.Service.SetTimeout(ctx, caller, ref, d)
	return sb, a.Finish(ctx, err)
}

// Extend sets a sandbox's end to d from now, unless the present end is later.
func (s *Service) Extend(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, error) {
	ctx, a := s.begin(ctx, caller, "extend", ref)
	sb, err := s.Service.Extend(ctx, caller, ref, d)
	return sb, a.Finish(ctx, err)
}

// SetAccess changes what a running sandbox may reach.
func (s *Service) SetAccess(ctx context.Context, caller sandbox.Principal, ref string, change func(sandbox.Access) (sandbox.Access, error)) (sandbox.Sandbox, error) {
	ctx, a := s.begin(ctx, caller, "access", ref)
	sb, err := s.Service.SetAccess(ctx, caller, ref, change)
	return sb, a.Finish(ctx, err)
}

// SignalProcess sends a signal to a process of a sandbox. The number is the process ID inside.
func (s *Service) SignalProcess(ctx context.Context, caller sandbox.Principal, ref string, pid int, sig syscall.Signal) error {
	ctx, a := s.begin(ctx, caller, "process.signal", ref)
	return a.Finish(ctx, s.Service.SignalProcess(ctx, caller, ref, pid, sig))
}
