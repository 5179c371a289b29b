package warmpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// Acquire hands a caller a warm sandbox, if there is one of the requested kind, and reports whether
// it did. A fault of the pool is not an error: the caller then creates a new sandbox.
func (p *Pool) Acquire(ctx context.Context, requested Plan) (sandbox.Sandbox, bool, error) {
	r := requested.Row
	if p == nil || !canBeWarm(requested) || r.Name != "" && p.fixedHostname(r.Engine) || p.nameTaken(ctx, r) {
		return sandbox.Sandbox{}, false, nil
	}
	w := p.take(requested)
	if w == nil {
		return sandbox.Sandbox{}, false, nil
	}
	r.ID, r.ControlToken = w.id, w.control
	started := false
	acquired, err := p.deps.Instances.Adopt(ctx, r, func(ctx context.Context) error {
		started = true
		err := p.handOver(ctx, w, r, requested.Policy, requested.Config)
		if _, untouched := errors.AsType[*untouchedError](err); err != nil && !untouched && ctx.Err() != nil {
			return &refusedError{sandbox.Canceled(context.Cause(ctx))}
		}
		return err
	})
	if err == nil {
		w.guest.close()
		return acquired, true, nil
	}
	if !started {
		p.putBack(w)
		return sandbox.Sandbox{}, true, err
	}
	if untouched, ok := errors.AsType[*untouchedError](err); ok {
		p.putBack(w)
		return sandbox.Sandbox{}, true, untouched.cause
	}
	p.background(func() { p.discard(w) })
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return sandbox.Sandbox{}, true, refused.cause
	}
	if errors.Is(err, errPolicyNotEnforced) {
		p.deps.Log.Error("warm sandbox did not match the request", "sandbox", w.id, "err", err)
	} else {
		p.deps.Log.Warn("warm sandbox not handed over", "sandbox", w.id, "err", err)
	}
	return sandbox.Sandbox{}, false, nil
}

// canBeWarm reports whether a warm sandbox can fulfill a request. A request for host files, volumes,
// containers inside or a snapshot needs an instance of its own.
func canBeWarm(requested Plan) bool {
	r := requested.Row
	return !r.ShowsHost() && !r.Base.Containers && len(r.Base.Volumes) == 0 && !rootfs.ShowsPrograms(requested.Spec.Image) &&
		len(requested.Template.Tools) == 0 && r.Origin == requested.Template.OwnMemory()
}

// fixedHostname reports whether sandboxes of an engine keep the host name that they started with.
func (p *Pool) fixedHostname(name string) bool {
	e, err := p.deps.Engines.Of(name)
	return err != nil || e.Info().FixedHostname
}

// nameTaken reports whether a live sandbox has the requested name. Without this check, a caller
// could empty the pool by requesting one name again and again. Rows.Acquire makes the final check.
func (p *Pool) nameTaken(ctx context.Context, r sandbox.Row) bool {
	if r.Name == "" {
		return false
	}
	found, err := p.deps.Rows.Find(ctx, r.Name, sandbox.Principal{KeyID: r.Owner, Local: r.Owner == ""})
	return err != nil || slices.ContainsFunc(found, func(f sandbox.Row) bool {
		return f.Name == r.Name && f.Owner == r.Owner && f.State != sandbox.Stopped
	})
}

// untouchedError is an error in the request that was found before any of its data had reached the
// sandbox. refusedError is one that was found later.
type (
	untouchedError struct{ cause error }
	refusedError   struct{ cause error }
)

func (e *untouchedError) Error() string { return e.cause.Error() }
func (e *refusedError) Error() string   { return e.cause.Error() }

// take counts a request and takes a warm sandbox of its kind out of the pool, or returns nil.
func (p *Pool) take(requested Plan) *warm {
	key, err := keyOf(requested)
	if err != nil {
		p.deps.Log.Error("kind of sandbox not determined", "err", err)
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.pace.Add(now)
	p.demand.Add(key, now)
	k := p.kinds[key]
	if k == nil {
		if k, err = p.newKind(requested); err != nil {
			p.deps.Log.Error("kind of sandbox not determined", "err", err)
			return nil
		}
		k.preload = p.options.Preload[requested.Template.Name]
		p.addKind(k)
		// The kind may be a usual one whose template has changed.
		p.defaultsUpdated = p.defaultsUpdated.Add(-defaultKindsInterval)
	}
	// While the pool is being closed, close ends its sandboxes.
	var w *warm
	if !p.closed {
		w = k.take()
	}
	if w == nil {
		k.missed++
		return nil
	}
	k.acquired++
	w.unwatch()
	return w
}

// putBack returns a sandbox to the warm pool if no part of a request has reached it. If its kind
// was given up since, the sandbox is ended, because no request would find it there.
func (p *Pool) putBack(w *warm) {
	var ctx context.Context
	p.mu.Lock()
	ctx, w.unwatch = context.WithCancel(p.ctx)
	returned := !p.closed && p.kinds[w.kind.key] == w.kind
	if returned {
		w.kind.acquired--
		w.kind.ready = append(w.kind.ready, w)
		p.watches.Go(func() { p.watch(ctx, w) })
	}
	p.mu.Unlock()
	if !returned {
		p.discard(w)
	}
}

// background runs a function in the background. close waits for it.
func (p *Pool) background(do func()) {
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

// handOver transfers a warm sandbox to the caller. The order matters for safety. The policy's
// bindings are resolved while nothing has changed, and the policy is in force before the guest
// checks it. Only after that does the row become the caller's, so that others can find the sandbox.
// If the process dies in between, it leaves a warm row without a process, which Reconcile removes.
func (p *Pool) handOver(ctx context.Context, w *warm, r sandbox.Row, policy *policy.Policy, config guest.Config) error {
	env := w.env
	started := time.Now()
	if err := w.awaitTasks(ctx); err != nil {
		return err
	}
	if w.kind.attached {
		a, err := p.bind(ctx, r, policy)
		if err != nil {
			if dropErr := p.deps.Access.DropValues(context.WithoutCancel(ctx), r.ID, ""); dropErr != nil {
				return errors.Join(err, dropErr)
			}
			return &untouchedError{err}
		}
		a.Probes = true
		if err := p.deps.Access.Update(ctx, a); err != nil {
			return fmt.Errorf("link of %s: %w", r.ID, err)
		}
		env = access.Variables(a.Secrets, w.env)
	} else if _, err := p.deps.Access.Plan(ctx, r, policy); err != nil {
		return &untouchedError{err} // without a network, its bindings could not be used
	}
	attached := time.Now()
	config.SandboxID, config.Hostname, config.ControlToken = r.ID, cmp.Or(r.Name, r.ID), r.ControlToken
	config.Env["E2B_SANDBOX_ID"] = r.ID
	rootfs.AddEnv(config.Env, env)
	// The files exist already: they belong to the attachment, not to the caller.
	config.Renew, config.Files = guest.Claimed, nil
	if err := w.guest.post(ctx, guest.PathClaim, config); err != nil {
		return err
	}
	claimed := time.Now()
	r.State, r.Access.Values = sandbox.Running, nil
	if err := p.deps.Instances.Record(ctx, r); err != nil {
		return &refusedError{err}
	}
	recorded := time.Now()
	acquired, err := p.deps.Rows.Acquire(ctx, r, p.deps.MaxLive)
	p.deps.Log.Debug("sandbox handed over", "sandbox", r.ID, "link", attached.Sub(started), "guest", claimed.Sub(attached), "record", recorded.Sub(claimed), "row", time.Since(recorded))
	switch {
	case fault.KindOf(err) == fault.Exhausted || fault.KindOf(err) == fault.Exists:
		return &refusedError{err}
	case err == nil && !acquired:
		return errors.New("the row of the warm sandbox is gone")
	}
	return err
}

// bind encrypts and stores a request's own values and resolves all bindings of its policy.
func (p *Pool) bind(ctx context.Context, r sandbox.Row, policy *policy.Policy) (sandbox.Attachment, error) {
	if err := p.deps.Access.Seal(ctx, r.ID, r.Access); err != nil {
		return sandbox.Attachment{}, err
	}
	return p.deps.Access.Resolve(ctx, r, policy)
}
