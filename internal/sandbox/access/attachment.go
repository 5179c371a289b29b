package access

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/lockfile"
	"github.com/crannog/crannog/internal/sandbox"
)

// Connects reports whether sandboxes can have a network at all.
func (s *Service) Connects() bool { return s.deps.Gateway != nil }

// Resolve returns the attachment of a sandbox with the values of all secrets that its policy binds.
// From then on these values are redacted in the sandbox's output.
func (s *Service) Resolve(ctx context.Context, r sandbox.Row, p *policy.Policy) (sandbox.Attachment, error) {
	a := sandbox.Attachment{Sandbox: r.ID, Owner: r.Owner, Policy: p}
	if len(p.Document().Secrets.Bind) == 0 {
		return a, s.Redact(r.ID, p, nil)
	}
	if s.deps.Sealed == nil {
		return a, noSecrets()
	}
	var err error
	if a.Secrets, err = s.deps.Sealed.Resolve(ctx, holder(r), p); err != nil {
		return a, err
	}
	return a, s.Redact(r.ID, p, a.Secrets)
}

// holder returns the holder whose secrets a sandbox's bindings may name.
func holder(r sandbox.Row) sandbox.Holder {
	return sandbox.Holder{Owner: r.Owner, Local: r.Owner == "", Sandbox: r.ID, Own: r.Access.Own}
}

// Plan returns the attachment that a sandbox's instance needs, or nil if it has no
// network.
func (s *Service) Plan(ctx context.Context, r sandbox.Row, p *policy.Policy) (*sandbox.Attachment, error) {
	if !r.Access.Linked() {
		if n := len(p.Document().Secrets.Bind); n > 0 {
			return nil, fault.Newf(fault.Invalid, "secrets_without_network",
				"the policy binds %d secrets, but the sandbox has no network on which to use them", n).WithHint("allow the hosts, or drop the bindings")
		}
		return nil, s.Redact(r.ID, p, nil)
	}
	if s.deps.Gateway == nil {
		return nil, noNetwork()
	}
	a, err := s.Resolve(ctx, r, p)
	if err == nil {
		a.Locked, err = s.locked(ctx, r)
	}
	return &a, err
}

// locked returns the set of lockfiles of a sandbox, as it was before anything ran in it. Attack: a
// program in the sandbox edits a lockfile and has the sandbox paused and resumed, or forked.
func (s *Service) locked(ctx context.Context, r sandbox.Row) (*lockfile.Set, error) {
	switch {
	case r.Locked != nil:
		return r.Locked, nil
	case r.Base.Locked != "":
		return s.deps.Locks.LockSet(ctx, r.Base.Locked)
	case r.Workspace == "":
		return lockfile.None(), nil
	}
	return nil, nil // the policy at its creation did not require lockfiles
}

// Attach connects a sandbox to the egress gateway. A nil attachment means no network.
func (s *Service) Attach(ctx context.Context, a *sandbox.Attachment) (sandbox.Link, error) {
	if a == nil {
		return sandbox.Link{}, nil
	}
	if s.deps.Gateway == nil {
		return sandbox.Link{}, noNetwork()
	}
	link, err := s.deps.Gateway.Attach(ctx, *a)
	if err != nil {
		return sandbox.Link{}, fmt.Errorf("attach %s to the network: %w", a.Sandbox, err)
	}
	link.Env = Variables(a.Secrets, link.Env)
	return link, nil
}

// Update puts another policy and its secrets into force.
func (s *Service) Update(ctx context.Context, a sandbox.Attachment) error {
	if s.deps.Gateway == nil {
		return noNetwork()
	}
	return s.deps.Gateway.Update(ctx, a)
}

// Detach ends a sandbox's network attachment, if it has one.
func (s *Service) Detach(ctx context.Context, id string) error {
	if s.deps.Gateway == nil {
		return nil
	}
	if err := s.deps.Gateway.Detach(ctx, id); err != nil {
		return fmt.Errorf("detach %s from the network: %w", id, err)
	}
	return nil
}

// Adopt takes over the attachments of the given sandboxes, and returns the sandboxes that have lost
// theirs.
func (s *Service) Adopt(ctx context.Context, ids []string) (lost []string, err error) {
	if s.deps.Gateway == nil || len(ids) == 0 {
		return nil, nil
	}
	if lost, err = s.deps.Gateway.Adopt(ctx, ids); err != nil {
		return nil, fmt.Errorf("take over network attachments: %w", err)
	}
	return lost, nil
}

// Variables returns the environment variables of an attachment and one variable for each secret,
// because many programs refuse to start without their keys. The value of such a variable is a
// placeholder.
func Variables(secrets []egress.Secret, attached map[string]string) map[string]string {
	all := make(map[string]string, len(secrets)+len(attached))
	for _, secret := range secrets {
		if strings.HasPrefix(secret.Name, policy.OwnPrefix) {
			continue // programs do not know this secret
		}
		all[secret.Name] = Placeholder(secret.Name)
	}
	maps.Copy(all, attached)
	return all
}

// Placeholder is the value of a secret's variable inside the sandbox. It explains that the gateway
// adds the real value.
func Placeholder(secret string) string { return "sealed-by-crannog-" + secret }

func noNetwork() error {
	return fault.New(fault.Unsupported, "network_unavailable", "this server has no network for sandboxes")
}

func noSecrets() error {
	return fault.New(fault.Unsupported, "secrets_unavailable", "this server does not store secrets")
}
