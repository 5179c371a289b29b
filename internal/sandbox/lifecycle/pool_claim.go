package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// claim gives a caller a sandbox that waits, if there is one of the kind that
// it asks for, and reports whether it did. What the pool is to blame for is no
// error: the sandbox is then made anew.
func (s *Service) claim(ctx context.Context, r sandbox.Row, t sandbox.Template, p *policy.Policy, spec engine.Spec, config guest.Config) (sandbox.Sandbox, bool, error) {
	pool := s.pool.Load()
	if pool == nil || r.ShowsHost() || rootfs.ShowsPrograms(spec.Image) || len(t.Tools) > 0 || r.Origin != "" || s.nameTaken(ctx, r) {
		return sandbox.Sandbox{}, false, nil
	}
	w := pool.hand(r, t, spec, config)
	if w == nil {
		return sandbox.Sandbox{}, false, nil
	}
	began := time.Now()
	r.ID, r.ControlToken = w.id, w.control
	ctx, done, err := s.begin(ctx, r.ID)
	if err != nil {
		pool.putBack(w)
		return sandbox.Sandbox{}, true, err
	}
	defer done()
	unlock, err := s.locks.acquire(ctx, r.ID)
	if err != nil {
		pool.putBack(w)
		return sandbox.Sandbox{}, true, err
	}
	err = pool.give(ctx, w, r, p, config)
	if err == nil {
		defer unlock()
		w.line.close()
		return s.created(ctx, r, began, "pool"), true, nil
	}
	unlock()
	if untouched, ok := errors.AsType[*untouchedError](err); ok {
		s.cut(w.id)
		pool.putBack(w)
		return sandbox.Sandbox{}, true, untouched.cause
	}
	pool.loops(func() { pool.discard(w) })
	if because := context.Cause(ctx); because != nil {
		return sandbox.Sandbox{}, true, canceled(because)
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return sandbox.Sandbox{}, true, refused.cause
	}
	if errors.Is(err, errNotHeld) {
		s.log.Error("waiting sandbox was not what was asked for", "sandbox", w.id, "err", err)
	} else {
		s.log.Warn("waiting sandbox not handed over", "sandbox", w.id, "err", err)
	}
	return sandbox.Sandbox{}, false, nil
}

// nameTaken looks for a live sandbox of the name before one that waits is used
// up for it: a caller could empty the pool by asking for one name again and
// again. It is not what decides, so a failure to look is none to be told.
func (s *Service) nameTaken(ctx context.Context, r sandbox.Row) bool {
	if r.Name == "" {
		return false
	}
	found, err := s.store.Find(ctx, r.Name, sandbox.Principal{KeyID: r.Owner, Local: r.Owner == ""})
	return err != nil || slices.ContainsFunc(found, func(f sandbox.Row) bool {
		return f.Name == r.Name && f.Owner == r.Owner && f.State != sandbox.Stopped
	})
}

// untouchedError is a request's own fault, found before anything of the
// request had reached the sandbox. refusedError is one found later.
type (
	untouchedError struct{ cause error }
	refusedError   struct{ cause error }
)

func (e *untouchedError) Error() string { return e.cause.Error() }
func (e *refusedError) Error() string   { return e.cause.Error() }

// hand counts a request and takes a waiting sandbox of its kind out, or
// returns nil.
func (p *pool) hand(r sandbox.Row, t sandbox.Template, spec engine.Spec, config guest.Config) *waiting {
	key, err := keyOf(r.Engine, spec, config, r.Access.Linked(), t)
	if err != nil {
		p.s.log.Error("kind of sandbox not found out", "err", err)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.pace.Ask(now)
	p.book.Ask(key, now)
	k := p.kinds[key]
	if k == nil {
		if k, err = p.s.newKind(r, t, spec, config); err != nil {
			p.s.log.Error("kind of sandbox not found out", "err", err)
			return nil
		}
		k.preload = p.options.Preload[t.Name]
		p.meet(k)
		// It may be a usual one whose template has changed.
		p.settled = p.settled.Add(-usualEvery)
	}
	// What a pool has that is being closed, close ends.
	var w *waiting
	if !p.closed {
		w = k.take()
	}
	if w == nil {
		k.missed++
		return nil
	}
	k.claimed++
	w.unwatch()
	return w
}

// putBack returns a sandbox to the warm pool if no part of a request has reached it.
// If its kind was given up since, the sandbox is ended: no caller would find it
// there.
func (p *pool) putBack(w *waiting) {
	var ctx context.Context
	p.mu.Lock()
	ctx, w.unwatch = context.WithCancel(p.ctx)
	kept := !p.closed && p.kinds[w.kind.key] == w.kind
	if kept {
		w.kind.claimed--
		w.kind.ready = append(w.kind.ready, w)
		p.watches.Go(func() { p.watch(ctx, w) })
	}
	p.mu.Unlock()
	if !kept {
		p.discard(w)
	}
}

// loops does something in the background that close waits for.
func (p *pool) loops(do func()) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.watches.Go(do)
	}
	p.mu.Unlock()
	if closed {
		do()
	}
}

// give makes a waiting sandbox the caller's. The order is the argument: what
// the policy binds is found out while nothing has changed; the policy is in
// force before the guest checks that it holds; and the row is the caller's,
// so that anybody can find the sandbox, only after that. Who dies in between
// leaves a waiting row without a process, which Reconcile removes.
func (p *pool) give(ctx context.Context, w *waiting, r sandbox.Row, policy *policy.Policy, config guest.Config) error {
	s := p.s
	env := w.env
	began := time.Now()
	if err := w.alone(ctx); err != nil {
		return err
	}
	if w.kind.linked {
		a, err := s.bound(ctx, r, policy)
		if err != nil {
			if dropped := s.access.DropValues(context.WithoutCancel(ctx), r.ID, ""); dropped != nil {
				return errors.Join(err, dropped)
			}
			return &untouchedError{err}
		}
		a.Looks = true
		if err := s.access.Update(ctx, a); err != nil {
			return fmt.Errorf("link of %s: %w", r.ID, err)
		}
		env = access.Variables(a.Secrets, w.env)
	} else if _, err := s.access.Plan(ctx, r, policy); err != nil {
		return &untouchedError{err} // it binds what nothing could use
	}
	linked := time.Now()
	config.SandboxID, config.Hostname, config.ControlToken = r.ID, cmp.Or(r.Name, r.ID), r.ControlToken
	config.Env["E2B_SANDBOX_ID"] = r.ID
	rootfs.AddEnv(config.Env, env)
	// The files are there: they are the link's, not the caller's.
	config.Renew, config.Files = guest.Claimed, nil
	if err := w.line.post(ctx, guest.PathClaim, config); err != nil {
		return err
	}
	held := time.Now()
	r.State, r.Access.Values = sandbox.Running, nil
	if err := s.started(ctx, r, "pool"); err != nil {
		return &refusedError{err}
	}
	told := time.Now()
	claimed, err := s.store.Claim(ctx, r, s.settings.MaxLive)
	s.log.Debug("sandbox handed over", "sandbox", r.ID, "link", linked.Sub(began), "guest", held.Sub(linked), "record", told.Sub(held), "row", time.Since(told))
	switch {
	case fault.KindOf(err) == fault.Exhausted || fault.KindOf(err) == fault.Exists:
		return &refusedError{err}
	case err == nil && !claimed:
		return errors.New("the row of the waiting sandbox is gone")
	}
	return err
}

// bound seals a request's own values and resolves all that its policy binds.
func (s *Service) bound(ctx context.Context, r sandbox.Row, p *policy.Policy) (sandbox.Attachment, error) {
	if err := s.access.Seal(ctx, r.ID, r.Access); err != nil {
		return sandbox.Attachment{}, err
	}
	return s.access.Resolve(ctx, r, p)
}
