package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// detach ends a sandbox's network attachment, if it has one.
func (s *Service) detach(ctx context.Context, r sandbox.Row) error {
	if !r.Access.Linked() {
		return nil
	}
	return s.access.Detach(ctx, r.ID)
}

// SetAccess changes the access of a running sandbox. A sandbox without a network attachment cannot
// get a network, because an attachment is part of its instance.
func (s *Service) SetAccess(ctx context.Context, caller sandbox.Principal, ref string, alter func(sandbox.Access) (sandbox.Access, error)) (sandbox.Sandbox, error) {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	change := func(a sandbox.Access) (sandbox.Access, error) {
		next, err := alter(a)
		next.Within = a.Within
		return next, err
	}
	if r.State == sandbox.Running {
		// The lock is not held, because an approval takes time.
		if err := s.access.MayWiden(ctx, r, change); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	requestedUnder := r.PolicyDigest
	return s.setAccess(ctx, caller, r.ID, func(a sandbox.Access) (sandbox.Access, error) {
		p, err := s.access.Compile(a)
		if err != nil {
			return a, err
		}
		if p.Level() == access.CarefulLevel && p.Digest() != requestedUnder {
			return a, fault.New(fault.Conflict, "policy_changed", "the policy has changed since the request; try again")
		}
		return change(a)
	})
}

func (s *Service) setAccess(ctx context.Context, caller sandbox.Principal, ref string, change func(sandbox.Access) (sandbox.Access, error)) (sandbox.Sandbox, error) {
	r, err := s.resolve(ctx, caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	unlock, err := s.operations.locks.acquire(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	// The row is read again, because another change may have come first.
	if r, err = s.store.Get(ctx, r.ID); err != nil {
		return sandbox.Sandbox{}, err
	}
	if err := s.engines.checkServed(r); err != nil {
		return sandbox.Sandbox{}, err
	}
	if r.State != sandbox.Running {
		return sandbox.Sandbox{}, sandbox.NotRunning(r)
	}
	next, err := change(r.Access)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	next.Within = r.Access.Within // the template's documents stay
	if err := checkReferences(caller, next, r.Access); err != nil {
		return sandbox.Sandbox{}, err
	}
	if next.Linked() && !r.Access.Linked() {
		return sandbox.Sandbox{}, fault.Newf(fault.Conflict, "network_fixed", "Sandbox \"%s\" was created without a network", r.ID).
			WithHint("create one with a network, such as --net policy, whose policy can be changed while it runs")
	}
	// The attachment stays even if the policy denies all traffic.
	if r.Access.Linked() && !next.Linked() {
		next = next.Closed()
	}
	next = next.Resolved()
	p, err := s.planner.compileFor(r, next)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	before := r.Access
	// Values that the old policy binds stay redacted. A policy whose secrets are lost must still be
	// replaceable.
	if err := s.access.Recall(ctx, r); err != nil {
		s.log.Warn("values of the replaced policy are not redacted", "sandbox", r.ID, "err", err)
	}
	if r.Access, err = s.access.Reseal(ctx, r.ID, before, next); err != nil {
		return sandbox.Sandbox{}, err
	}
	changed := payload.Policy{Old: r.PolicyDigest, New: p.Digest(), OldLevel: r.PolicyLevel, NewLevel: p.Level(), Net: string(r.Access.Net), OldDocument: s.access.Document(before)}
	r.PolicyLevel, r.PolicyDigest = p.Level(), p.Digest()
	err = s.audit.Append(ctx, auditlog.Entry(ctx, audit.PolicyChanged, r.ID, changed))
	if err == nil {
		err = s.enforce(ctx, r, p)
	}
	if err != nil {
		return sandbox.Sandbox{}, errors.Join(err, s.access.DropValues(context.WithoutCancel(ctx), r.ID, before.Own))
	}
	if r.Access.Own != before.Own {
		// If this fails, the values are removed with the sandbox. Nothing uses them until then.
		if err := s.access.DropValues(ctx, r.ID, r.Access.Own); err != nil {
			s.log.Warn("old values not removed", "sandbox", r.ID, "err", err)
		}
	}
	s.live.renew(r)
	s.access.RelaxRedaction(r.ID, p)
	s.access.Retire(ctx, r.ID, r.PolicyDigest, "the policy has changed")
	s.note(ctx, r.ID, "info", "policy changed", map[string]string{"policy": describe(p, r.Access)})
	return r.Sandbox, nil
}

// enforce puts a changed policy in force and stores it.
func (s *Service) enforce(ctx context.Context, r sandbox.Row, p *policy.Policy) error {
	if r.Access.Linked() {
		a, err := s.access.Resolve(ctx, r, p)
		if err != nil {
			return err
		}
		if err := s.access.Update(ctx, a); err != nil {
			return fmt.Errorf("policy of %s: %w", r.ID, err)
		}
	} else if err := s.access.Redact(r.ID, p, nil); err != nil {
		return err
	}
	return s.store.SetAccess(ctx, r.ID, r.Access, r.PolicyLevel, r.PolicyDigest)
}

// renew replaces this process's copy of a running sandbox's access.
func (l *liveSandboxes) renew(r sandbox.Row) {
	l.update(r.ID, func(known *sandbox.Row) {
		known.Access, known.PolicyLevel, known.PolicyDigest = r.Access, r.PolicyLevel, r.PolicyDigest
	})
}

// reconnect takes over the network attachments of the running sandboxes, and marks the sandboxes
// that have lost theirs. A lost attachment is not restored: the sandbox's end of it is closed for
// good, so the sandbox reaches nothing.
func (s *Service) reconnect(ctx context.Context) error {
	var ids []string
	for _, b := range s.live.list() {
		if sb, ok := s.live.get(b.id); ok && sb.Access.Linked() {
			ids = append(ids, sb.ID)
		}
	}
	lost, err := s.access.Adopt(ctx, ids)
	if err != nil {
		return err
	}
	s.Unlinked(lost)
	return nil
}

// Reconnect checks again which attachments exist, after their process has died.
func (s *Service) Reconnect(ctx context.Context) {
	s.pool.Load().DropAttached()
	if err := s.reconnect(ctx); err != nil {
		s.log.Error("lost network attachments not determined", "err", err)
	}
}

// Unlinked records that sandboxes have lost their network attachments.
func (s *Service) Unlinked(lost []string) {
	for _, id := range lost {
		first := false
		s.live.update(id, func(r *sandbox.Row) { first, r.Unlinked = !r.Unlinked, true })
		if first {
			s.noteLoss(id)
		}
	}
}

// lossNote is the line in a sandbox's log about a lost attachment.
const lossNote = "the egress gateway's process has died; the sandbox no longer has a network"

// noteLoss adds the line to a sandbox's log. It does so only once, although each process finds the
// loss by itself.
func (s *Service) noteLoss(id string) {
	ctx := context.WithoutCancel(s.work.ctx)
	entries, err := s.store.Entries(ctx, id)
	if err == nil && slices.ContainsFunc(entries, func(e sandbox.LogEntry) bool { return e.Message == lossNote }) {
		return
	}
	s.log.Warn("sandbox lost its network", "sandbox", id)
	s.note(ctx, id, "error", lossNote, nil)
}

// describe names a policy in a log.
func describe(p *policy.Policy, a sandbox.Access) string {
	return fmt.Sprintf("%s, level %s, policy %s", a.Network(), p.Level(), p.Digest())
}
