// Package access owns the server's view of sandboxes' networks and secrets: it compiles their
// policies, resolves the bindings, attaches sandboxes to the egress gateway, requests approvals,
// and redacts secret values in the output of sandboxes.
package access

import (
	"context"
	"log/slog"

	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/host/lockorder"
	"github.com/crannog/crannog/internal/sandbox"
)

// Rows reads the rows of sandboxes.
type Rows interface {
	Get(ctx context.Context, id string) (sandbox.Row, error)
}

// Deps is what a Service needs. Without Gateway, Sealed or Approvals, requests that need them are
// refused.
type Deps struct {
	Settings  sandbox.Settings
	Rows      Rows
	Locks     sandbox.LockSets
	Gateway   sandbox.Gateway
	Sealed    sandbox.Sealed
	Approvals sandbox.ApprovalRequests
	// Known returns the digest of the policy of a sandbox that is running or being created in this
	// process, and reports whether there is such a sandbox. The digest is "" if it is not known
	// yet.
	Known func(id string) (digest string, ok bool)
	Log   *slog.Logger
}

// Service is safe for concurrent use. It calls Known without holding a lock.
type Service struct {
	deps Deps

	mu        lockorder.Mutex[rank]
	redactors map[string]*sandbox.Redactor // by IDs of sandboxes that run or are being created
	// ended contains the redactors of ended sandboxes with events that are not in the audit log
	// yet.
	ended map[string]*sandbox.Redactor
}

// rank is below the locks of package lifecycle, which calls this package while it holds them.
type rank struct{}

func (rank) Rank() (int, string) { return 7, "access.Service.mu" }

// New returns a Service.
func New(d Deps) *Service {
	return &Service{deps: d, redactors: make(map[string]*sandbox.Redactor), ended: make(map[string]*sandbox.Redactor)}
}

// Compile compiles the policy of an access, without regard to an engine.
func (s *Service) Compile(a sandbox.Access) (*policy.Policy, error) {
	p, _, err := a.Compile(s.deps.Settings)
	return p, err
}

// Document returns the policy of an access as one document for the audit log, or "" if it is too
// long or cannot be compiled any more.
func (s *Service) Document(a sandbox.Access) string {
	p, err := s.Compile(a)
	if err != nil {
		return ""
	}
	text, err := p.Document().YAML()
	if err != nil || len(text) > payload.MaxPolicy {
		return ""
	}
	return text
}
