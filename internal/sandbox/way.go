package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
)

// Way is the way out: what the Service uses of the process that holds all
// links. It outlives this process, as sandboxes do.
type Way interface {
	// Attach makes a link, whose far end is judged by the policy.
	Attach(ctx context.Context, a Attachment) (Link, error)
	// Update replaces the policy and secrets of an attached sandbox. What is
	// no longer allowed is closed. For one whose link is gone it fails
	// with egress.CodeNotAttached.
	Update(ctx context.Context, a Attachment) error
	// Detach ends a link. An unknown sandbox is success.
	Detach(ctx context.Context, sandbox string) error
	// Adopt takes over the links that an earlier process made, and returns
	// those of the sandboxes that have none any more.
	Adopt(ctx context.Context, sandboxes []string) (lost []string, err error)
}

// Attachment is one sandbox's link, policy and secrets.
type Attachment struct {
	Sandbox string
	Owner   string
	Policy  *policy.Policy
	Secrets []egress.Secret
	// Looks says of an update that the sandbox's first process will try the
	// policy before the sandbox is ready, as it does after each attachment.
	Looks bool
}

// Link is what a sandbox gets of its link.
type Link struct {
	// Box is the sandbox's end. The caller closes it.
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
func (s *Service) attachment(ctx context.Context, r Record, p *policy.Policy) (Attachment, error) {
	a := Attachment{Sandbox: r.ID, Owner: r.Owner, Policy: p}
	if len(p.Document().Secrets.Bind) == 0 {
		return a, s.hide(r.ID, p, nil)
	}
	if s.sealed == nil {
		return a, fault.New(fault.Unsupported, "secrets_unavailable", "this service keeps no secrets")
	}
	var err error
	a.Secrets, err = s.sealed.Resolve(ctx, Holder{
		Owner: r.Owner, Local: r.Owner == "", Sandbox: r.ID, Own: r.Access.Own,
	}, p)
	if err == nil {
		err = s.hide(r.ID, p, a.Secrets)
	}
	return a, err
}

// toAttach is what the link of a sandbox's machine is to be, or nil if it is to
// have none.
func (s *Service) toAttach(ctx context.Context, r Record, p *policy.Policy) (*Attachment, error) {
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
func (s *Service) attach(ctx context.Context, a *Attachment) (Link, error) {
	if a == nil {
		return Link{}, nil
	}
	link, err := s.way.Attach(ctx, *a)
	if err != nil {
		return Link{}, fmt.Errorf("link of %s: %w", a.Sandbox, err)
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
func (s *Service) detach(ctx context.Context, r Record) error {
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
func (s *Service) SetAccess(ctx context.Context, who Principal, ref string, change func(Access) (Access, error)) (Sandbox, error) {
	ctx, d := s.deed(ctx, who, "access", ref)
	sb, err := s.mayAccess(ctx, who, ref, change)
	return sb, d.told(ctx, err)
}

func (s *Service) mayAccess(ctx context.Context, who Principal, ref string, change func(Access) (Access, error)) (Sandbox, error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return Sandbox{}, err
	}
	if r.State == Running {
		// Without the lock: people take their time.
		if err := s.mayWiden(ctx, r, change); err != nil {
			return Sandbox{}, err
		}
	}
	asked := r.PolicyDigest
	return s.setAccess(ctx, who, r.ID, func(a Access) (Access, error) {
		p, err := s.compile(a)
		if err != nil {
			return a, err
		}
		if p.Level() == carefulLevel && p.Digest() != asked {
			return a, fault.New(fault.Conflict, "policy_changed", "the policy was changed meanwhile; ask again")
		}
		return change(a)
	})
}

func (s *Service) setAccess(ctx context.Context, who Principal, ref string, change func(Access) (Access, error)) (Sandbox, error) {
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return Sandbox{}, err
	}
	unlock, err := s.locks.acquire(ctx, r.ID)
	if err != nil {
		return Sandbox{}, err
	}
	defer unlock()
	// Read again: another change may have come first.
	if r, err = s.store.Get(ctx, r.ID); err != nil {
		return Sandbox{}, err
	}
	if r.State != Running {
		return Sandbox{}, notRunning(r)
	}
	next, err := change(r.Access)
	if err != nil {
		return Sandbox{}, err
	}
	if err := checkReferences(who, next, r.Access); err != nil {
		return Sandbox{}, err
	}
	if next.Linked() && !r.Access.Linked() {
		return Sandbox{}, fault.Newf(fault.Conflict, "network_fixed", "Sandbox \"%s\" was made without a network", r.ID).
			WithHint("make one with a network, such as --net policy, whose policy can change while it runs")
	}
	// The link stays even if nothing is left that could pass it.
	if r.Access.Linked() && !next.Linked() {
		next = next.closed()
	}
	next = next.settled()
	p, err := s.compile(next)
	if err != nil {
		return Sandbox{}, err
	}
	before := r.Access
	// What its policy bound until now stays masked. A policy whose secrets are
	// lost must still be replaceable.
	if err := s.recall(ctx, r); err != nil {
		s.log.Warn("values of the replaced policy are not masked", "sandbox", r.ID, "err", err)
	}
	if r.Access, err = s.keepOwn(ctx, r.ID, before, next); err != nil {
		return Sandbox{}, err
	}
	changed := payload.Policy{Old: r.PolicyDigest, New: p.Digest(), OldLevel: r.PolicyLevel, NewLevel: p.Level(), Net: string(r.Access.Net), OldDocument: s.written(before)}
	r.PolicyLevel, r.PolicyDigest = p.Level(), p.Digest()
	err = s.book.must(ctx, entry(ctx, audit.PolicyChanged, r.ID, changed))
	if err == nil {
		err = s.enforce(ctx, r, p)
	}
	if err != nil {
		return Sandbox{}, errors.Join(err, s.dropOwn(context.WithoutCancel(ctx), r.ID, before.Own))
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
func (s *Service) written(access Access) string {
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
func (s *Service) enforce(ctx context.Context, r Record, p *policy.Policy) error {
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
func (s *Service) renew(r Record) {
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
	if err == nil && slices.ContainsFunc(entries, func(e LogEntry) bool { return e.Message == lossNote }) {
		return
	}
	s.log.Warn("sandbox lost its network", "sandbox", id)
	s.note(ctx, id, "error", lossNote, nil)
}
