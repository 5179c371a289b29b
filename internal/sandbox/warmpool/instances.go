package warmpool

import (
	"context"
	"log/slog"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/admission"
)

// Instances creates, hands over and removes the sandboxes of a pool.
type Instances interface {
	// Plan returns the plan of the sandbox that a local caller's request would create.
	Plan(ctx context.Context, req sandbox.CreateRequest) (Plan, error)
	// Reserve returns the row of a sandbox that no client knows, with a new ID and new tokens. It
	// is not in the store yet.
	Reserve() sandbox.Row
	// Boot writes the row and boots an instance, and returns the environment variables of its
	// network. After an error nothing of it is left, unless steps.Left reports true.
	Boot(ctx context.Context, b Boot) (env map[string]string, err error)
	// Adopt transfers a warm sandbox to the caller. The sandbox is locked while handOver runs,
	// whose context ends if the sandbox is removed. Adopt returns handOver's error unchanged.
	Adopt(ctx context.Context, r sandbox.Row, handOver func(context.Context) error) (sandbox.Sandbox, error)
	// Record makes the audit entry of the start of a sandbox durable.
	Record(ctx context.Context, r sandbox.Row) error
	// Discard removes a sandbox without an owner, and its row.
	Discard(ctx context.Context, id string) error
	// Busy reports whether a caller waits for a sandbox.
	Busy() bool
}

// Plan is the plan of a sandbox.
type Plan struct {
	Row      sandbox.Row
	Template sandbox.Template
	Policy   *policy.Policy
	Spec     engine.Spec
	Config   guest.Config
}

// Boot is the boot of a warm sandbox.
type Boot struct {
	Plan
	// Launch makes the engine start the instance.
	Launch func(context.Context, engine.Spec, guest.Config) error
	// Ready is the last step.
	Ready func(context.Context) error
}

// Rows is the part of the store that the pool uses.
type Rows interface {
	Find(ctx context.Context, name string, caller sandbox.Principal) ([]sandbox.Row, error)
	Acquire(ctx context.Context, r sandbox.Row, maxLive int) (bool, error)
}

// Deps is what a Pool needs. All but Drafts are required.
type Deps struct {
	Instances Instances
	Engines   *engine.Registry
	Access    *access.Service
	Rows      Rows
	Admission *admission.Queue
	// Drafts creates the directory for a template snapshot. Without it there are none.
	Drafts func() (sandbox.Draft, error)
	// MaxLive is the greatest number of live sandboxes.
	MaxLive int
	Log     *slog.Logger
}
