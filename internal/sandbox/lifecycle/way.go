package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// endQuestions ends questions that nothing can come of any more. One that stays
// open is ended by its own time, and a grant for another policy cannot be
// spent, so a failure fails nothing else.
func (s *Service) endQuestions(ctx context.Context, id, keep, reason string) {
	if s.questions == nil {
		return
	}
	if err := s.questions.Retire(ctx, id, keep, reason); err != nil {
		s.log.Warn("open questions not ended", "sandbox", id, "err", err)
	}
}

// attachment resolves what a sandbox's policy binds.
func (s *Service) attachment(ctx context.Context, r sandbox.Row, p *policy.Policy) (sandbox.Attachment, error) {
	a := sandbox.Attachment{Sandbox: r.ID, Owner: r.Owner, Policy: p}
	if len(p.Document().Secrets.Bind) == 0 {
		return a, s.hide(r.ID, p, nil)
	}
	if s.sealed == nil {
		return a, fault.New(fault.Unsupported, "secrets_unavailable", "this service keeps no secrets")
	}
	var err error
	a.Secrets, err = s.sealed.Resolve(ctx, sandbox.Holder{
		Owner: r.Owner, Local: r.Owner == "", Sandbox: r.ID, Own: r.Access.Own,
	}, p)
	if err == nil {
		err = s.hide(r.ID, p, a.Secrets)
	}
	return a, err
}

// toAttach is what the link of a sandbox's machine is to be, or nil if it is to
// have none.
func (s *Service) toAttach(ctx context.Context, r sandbox.Row, p *policy.Policy) (*sandbox.Attachment, error) {
	if !r.Access.Linked() {
		if n := len(p.Document().Secrets.Bind); n > 0 {
			return nil, fault.Newf(fault.Invalid, "secrets_without_network",
				"the policy binds %d secrets, and the sandbox has no network to use them on", n).WithHint("allow the hosts, or drop the bindings")
		}
		return nil, s.hide(r.ID, p, nil)
	}
	if s.way == nil {
		return nil, fault.New(fault.Unsupported, "network_unavailable", "this service gives no sandbox a network")
	}
	a, err := s.attachment(ctx, r, p)
	return &a, err
}

// attach gives a sandbox that is being started its link.
func (s *Service) attach(ctx context.Context, a *sandbox.Attachment) (sandbox.Link, error) {
	if a == nil {
		return sandbox.Link{}, nil
	}
	link, err := s.way.Attach(ctx, *a)
	if err != nil {
		return sandbox.Link{}, fmt.Errorf("link of %s: %w", a.Sandbox, err)
	}
	link.Env = variables(a.Secrets, link.Env)
	return link, nil
}

// variables are those of a link, beside one for each secret: programs refuse
// to start without their keys. What they find is no key, and says so to who
// reads it.
func variables(secrets []egress.Secret, link map[string]string) map[string]string {
	all := make(map[string]string, len(secrets)+len(link))
	for _, secret := range secrets {
		if strings.HasPrefix(secret.Name, policy.OwnPrefix) {
			continue // no program knows it
		}
		all[secret.Name] = Placeholder(secret.Name)
	}
	maps.Copy(all, link)
	return all
}

// Placeholder is what the variable of a sealed secret holds inside.
func Placeholder(secret string) string { return "sealed-by-crannog-" + secret }

// detach ends a sandbox's link.
func (s *Service) detach(ctx context.Context, r sandbox.Row) error {
	if s.way == nil || !r.Access.Linked() {
		return nil
	}
	if err := s.way.Detach(ctx, r.ID); err != nil {
		return fmt.Errorf("link of %s: %w", r.ID, err)
	}
	return nil
}

// SetAccess changes what a running sandbox may reach. A sandbox without a
// link stays without: a link is part of its machine.
func (s *Service) SetAccess(ctx context.Context, who sandbox.Principal, ref string, change func(sandbox.Access) (sandbox.Access, error)) (sandbox.Sandbox, error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if r.State == sandbox.Running {
		// Without the lock: people take their time.
		if err := s.mayWiden(ctx, r, change); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	asked := r.PolicyDigest
	return s.setAccess(ctx, who, r.ID, func(a sandbox.Access) (sandbox.Access, error) {
		p, err := s.compile(a)
		if err != nil {
			return a, err
		}
		if p.Level() == carefulLevel && p.Digest() != asked {
			return a, fault.New(fault.Conflict, "policy_changed", "the policy has changed since you asked; ask again")
		}
		return change(a)
	})
}

func (s *Service) setAccess(ctx context.Context, who sandbox.Principal, ref string, change func(sandbox.Access) (sandbox.Access, error)) (sandbox.Sandbox, error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	unlock, err := s.locks.acquire(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	// Read again: another change may have come first.
	if r, err = s.store.Get(ctx, r.ID); err != nil {
		return sandbox.Sandbox{}, err
	}
	if err := s.mustServe(r); err != nil {
		return sandbox.Sandbox{}, err
	}
	if r.State != sandbox.Running {
		return sandbox.Sandbox{}, sandbox.NotRunning(r)
	}
	next, err := change(r.Access)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if err := checkReferences(who, next, r.Access); err != nil {
		return sandbox.Sandbox{}, err
	}
	if next.Linked() && !r.Access.Linked() {
		return sandbox.Sandbox{}, fault.Newf(fault.Conflict, "network_fixed", "Sandbox \"%s\" was made without a network", r.ID).
			WithHint("make one with a network, such as --net policy, whose policy can change while it runs")
	}
	// The link stays even if nothing is left that could pass it.
	if r.Access.Linked() && !next.Linked() {
		next = next.Closed()
	}
	next = next.Settled()
	p, err := s.compileOn(r.Engine, next)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	before := r.Access
	// What its policy bound until now stays masked. A policy whose secrets are
	// lost must still be replaceable.
	if err := s.recall(ctx, r); err != nil {
		s.log.Warn("values of the replaced policy are not masked", "sandbox", r.ID, "err", err)
	}
	if r.Access, err = s.keepOwn(ctx, r.ID, before, next); err != nil {
		return sandbox.Sandbox{}, err
	}
	changed := payload.Policy{Old: r.PolicyDigest, New: p.Digest(), OldLevel: r.PolicyLevel, NewLevel: p.Level(), Net: string(r.Access.Net), OldDocument: s.written(before)}
	r.PolicyLevel, r.PolicyDigest = p.Level(), p.Digest()
	err = s.audit.Append(ctx, auditlog.Entry(ctx, audit.PolicyChanged, r.ID, changed))
	if err == nil {
		err = s.enforce(ctx, r, p)
	}
	if err != nil {
		return sandbox.Sandbox{}, errors.Join(err, s.dropOwn(context.WithoutCancel(ctx), r.ID, before.Own))
	}
	if r.Access.Own != before.Own {
		// What stays goes with the sandbox, and nothing names it.
		if err := s.dropOwn(ctx, r.ID, r.Access.Own); err != nil {
			s.log.Warn("old values not dropped", "sandbox", r.ID, "err", err)
		}
	}
	s.renew(r)
	s.unhide(r.ID, p)
	s.endQuestions(ctx, r.ID, r.PolicyDigest, "the policy has changed")
	s.note(ctx, r.ID, "info", "policy changed", map[string]string{"policy": describe(p, r.Access)})
	return r.Sandbox, nil
}

// written is a policy as one document for the record, or "".
func (s *Service) written(access sandbox.Access) string {
	p, err := s.compile(access)
	if err != nil {
		return "" // it could not be shown either
	}
	text, err := p.Document().YAML()
	if err != nil || len(text) > payload.MaxPolicy {
		return ""
	}
	return text
}

// enforce puts a changed policy in force and keeps it.
func (s *Service) enforce(ctx context.Context, r sandbox.Row, p *policy.Policy) error {
	if r.Access.Linked() {
		a, err := s.attachment(ctx, r, p)
		if err != nil {
			return err
		}
		if err := s.way.Update(ctx, a); err != nil {
			return fmt.Errorf("policy of %s: %w", r.ID, err)
		}
	} else if err := s.hide(r.ID, p, nil); err != nil {
		return err
	}
	return s.store.SetAccess(ctx, r.ID, r.Access, r.PolicyLevel, r.PolicyDigest)
}

// renew replaces what is known of a running sandbox's access.
func (s *Service) renew(r sandbox.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.live[r.ID]; b != nil {
		b.record.Access, b.record.PolicyLevel, b.record.PolicyDigest = r.Access, r.PolicyLevel, r.PolicyDigest
	}
}

// relink finds out which of the running sandboxes have lost their link, and
// takes over the others'. A lost link is not made again: the sandbox's end of
// it is closed for good, and it reaches nothing.
func (s *Service) relink(ctx context.Context) error {
	if s.way == nil {
		return nil
	}
	var ids []string
	for _, b := range s.boxes() {
		if sb, ok := s.known(b.id); ok && sb.Access.Linked() {
			ids = append(ids, sb.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	lost, err := s.way.Adopt(ctx, ids)
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	s.Unlinked(lost)
	return nil
}

// Relink looks again which links there are, after their process has died.
func (s *Service) Relink(ctx context.Context) {
	s.pool.Load().dropLinked()
	if err := s.relink(ctx); err != nil {
		s.log.Error("lost links not found out", "err", err)
	}
}

// Unlinked records that sandboxes have lost their links.
func (s *Service) Unlinked(lost []string) {
	for _, id := range lost {
		s.mu.Lock()
		b := s.live[id]
		first := b != nil && !b.record.Unlinked
		if first {
			b.record.Unlinked = true
		}
		s.mu.Unlock()
		if first {
			s.noteLoss(id)
		}
	}
}

// lossNote is what a sandbox's log says of a lost link.
const lossNote = "the process that held the link has died; nothing can be reached any more"

// noteLoss adds the loss to a sandbox's log, once: each process finds it out
// by itself.
func (s *Service) noteLoss(id string) {
	ctx := context.WithoutCancel(s.ctx)
	entries, err := s.store.Entries(ctx, id)
	if err == nil && slices.ContainsFunc(entries, func(e sandbox.LogEntry) bool { return e.Message == lossNote }) {
		return
	}
	s.log.Warn("sandbox lost its network", "sandbox", id)
	s.note(ctx, id, "error", lossNote, nil)
}
