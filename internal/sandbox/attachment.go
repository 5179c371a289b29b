package sandbox

import (
	"context"
	"os"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/guest"
)

// Gateway is the egress gateway: the process in which all sandbox networks end. It outlives
// this process, as sandboxes do.
type Gateway interface {
	// Attach connects a sandbox, whose traffic the policy decides about.
	Attach(ctx context.Context, a Attachment) (Link, error)
	// Update replaces the policy and secrets of an attached sandbox. Connections that
	// are no longer allowed are closed. If the sandbox is not attached any more, the
	// error has the code egress.CodeNotAttached.
	Update(ctx context.Context, a Attachment) error
	// Detach ends an attachment. An unknown sandbox is success.
	Detach(ctx context.Context, sandbox string) error
	// Adopt takes over the attachments that an earlier process made, and returns the
	// sandboxes that have none any more.
	Adopt(ctx context.Context, sandboxes []string) (lost []string, err error)
}

// Attachment is a sandbox's policy and secrets, as the gateway gets them.
type Attachment struct {
	Sandbox string
	Owner   string
	Policy  *policy.Policy
	Secrets []egress.Secret
	// Looks says that this update is followed by the readiness probe, which tries the
	// policy from inside.
	Looks bool
	// Kind is how the sandbox is connected; none is packets. End is the gateway's end of a
	// kind that is made where the sandbox is, and stays the caller's.
	Kind egress.AttachmentKind
	End  *os.File
}

// Link is the sandbox's end of its network attachment.
type Link struct {
	// Box is the sandbox's end. The caller closes it. It is nil where the caller gave the
	// gateway's end.
	Box *os.File
	// Files and Env make the programs inside trust the causeway and ask its
	// name server.
	Files []guest.File
	Env   map[string]string
}

// Holder is whose bindings are resolved.
type Holder struct {
	Owner string
	Local bool // the owner may name resources of this host
	// Sandbox has values of its own where Own names them.
	Sandbox, Own string
}

// Sealed keeps values and resolves what a policy binds.
type Sealed interface {
	// Resolve returns the values of a policy's bindings for a sandbox.
	Resolve(ctx context.Context, h Holder, p *policy.Policy) ([]egress.Secret, error)
	// Keep seals values of a sandbox's own under a name that is new.
	Keep(ctx context.Context, sandbox, name string, values map[string]config.Secret) error
	// Drop forgets what was kept for a sandbox, but for one name.
	Drop(ctx context.Context, sandbox, but string) error
}

// Questions are what sandboxes have asked people.
type Questions interface {
	// Retire ends the open questions of a sandbox that another policy than
	// keep has asked; "" ends all.
	Retire(ctx context.Context, sandbox, keep, reason string) error
	egress.Asker
}

// Wanted is a host that somebody asks people to let a running sandbox reach.
type Wanted struct {
	Host   string
	Port   int
	Reason string // text of the requesting program, not verified
	// Wait is how long to wait for an answer.
	Wait time.Duration
}
