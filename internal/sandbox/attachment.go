package sandbox

import (
	"context"
	"os"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/packages/lockfile"
)

// Gateway is the egress gateway: the process that terminates the networks of all sandboxes. Like
// sandboxes, it outlives this process.
type Gateway interface {
	// Attach connects a sandbox, whose traffic the policy then controls.
	Attach(ctx context.Context, a Attachment) (Link, error)
	// Update replaces the policy and secrets of an attached sandbox. Connections that
	// are no longer allowed are closed. If the sandbox is not attached any more, the
	// error has the code egress.CodeNotAttached.
	Update(ctx context.Context, a Attachment) error
	// Detach ends an attachment. It succeeds for an unknown sandbox.
	Detach(ctx context.Context, sandbox string) error
	// Adopt takes over the attachments that an earlier process made, and returns the sandboxes that
	// have lost theirs.
	Adopt(ctx context.Context, sandboxes []string) (lost []string, err error)
}

// Attachment is a sandbox's policy and secrets in the form that the gateway needs.
type Attachment struct {
	Sandbox string
	Owner   string
	Policy  *policy.Policy
	Secrets []egress.Secret
	// Probes is set if the readiness probe runs after this update. The probe tests the policy from
	// inside.
	Probes bool
	// Locked is what the lockfiles of the workspace name. Only Attach uses it.
	Locked *lockfile.Set
	// Kind is how the sandbox is connected; an empty kind means packets. End is the gateway's end
	// of the connection, for kinds whose ends are created by the engine. The caller keeps ownership
	// of it.
	Kind egress.AttachmentKind
	End  *os.File
}

// Link is the sandbox's end of its network attachment.
type Link struct {
	// End is the sandbox's end. The caller closes it. It is nil if the caller passed the gateway's
	// end.
	End *os.File
	// Files and Env make the programs inside trust the gateway's certificates and use its name
	// server.
	Files []guest.File
	Env   map[string]string
}

// Holder identifies the owner of the secrets that bindings may name.
type Holder struct {
	Owner string
	Local bool // bindings may name resources of this host
	// Sandbox has values of its own, which the secret store has under the name Own.
	Sandbox, Own string
}

// Sealed stores secret values and resolves a policy's bindings.
type Sealed interface {
	// Resolve returns the values of a policy's bindings for a sandbox.
	Resolve(ctx context.Context, h Holder, p *policy.Policy) ([]egress.Secret, error)
	// Keep encrypts and stores a sandbox's own values under a new name.
	Keep(ctx context.Context, sandbox, name string, values map[string]config.Secret) error
	// Drop removes a sandbox's own values, except those under one name.
	Drop(ctx context.Context, sandbox, except string) error
}

// ApprovalRequests are the approval requests of sandboxes.
type ApprovalRequests interface {
	// Retire closes the open approval requests of a sandbox except those of the policy keep; ""
	// closes all.
	Retire(ctx context.Context, sandbox, keep, reason string) error
	egress.Approver
}

// HostRequest is a request to let a running sandbox reach a host.
type HostRequest struct {
	Host   string
	Port   int
	Reason string // text of the requesting program, not verified
	// Wait is how long to wait for a decision.
	Wait time.Duration
}
