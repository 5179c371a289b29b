package warmpool

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/demand"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/steps"
)

// fill makes one warm sandbox of a kind.
func (p *Pool) fill(k *kind) error {
	started := time.Now()
	closed, err := p.closedPolicy(k)
	if err != nil {
		return err
	}
	p.makeSnapshot(k, closed)
	w := &warm{kind: k, probed: started}
	plan, err := p.planWarm(k, closed)
	if err != nil {
		return err
	}
	if err = p.bootWarm(w, plan); err != nil {
		if steps.Left(err) {
			p.discard(w) // discard retries the removal
		}
		return err
	}
	w.warmUp = newWarmUp(plan.Config)
	bytes := p.usage(p.ctx, plan.Row.Engine, w.id)
	var ctx context.Context
	ctx, w.unwatch = context.WithCancel(p.ctx)
	p.mu.Lock()
	if bytes > 0 {
		k.measured = bytes
	}
	added := !p.closed
	if added {
		k.ready = append(k.ready, w)
	}
	p.mu.Unlock()
	if !added {
		p.discard(w)
		return nil
	}
	p.watches.Go(func() { p.watch(ctx, w) })
	p.deps.Log.Debug("sandbox waits", "sandbox", w.id, "kind", k.name, "bytes", bytes, "restored", w.restored, "took", time.Since(started))
	return nil
}

// planWarm plans a warm sandbox of a kind. It has no owner, an ID and tokens that no client knows,
// and no data of any request.
func (p *Pool) planWarm(k *kind, closed *policy.Policy) (Plan, error) {
	info := k.engine.Info()
	r := p.deps.Instances.Reserve()
	r.StartedAt = time.Now().UTC().Round(0)
	r.EndAt = r.StartedAt.Add(warmLifetime)
	r.State, r.TemplateID, r.Template, r.Limits = sandbox.Waiting, k.template.ID, k.requestedTemplate, k.limits
	r.Engine, r.Boundary, r.Enforced = info.Name, info.Boundary, info.Enforces
	r.Origin, r.At = k.template.OwnMemory(), k.template.OwnMemory()
	r.Access, r.PolicyLevel, r.PolicyDigest = k.closedAccess().Resolved(), closed.Level(), closed.Digest()
	spec, config := rootfs.ComposeMasked(&r, k.template, closed, info, k.masks, k.noRoot, r.ID)
	plan := Plan{Row: r, Template: k.template, Policy: closed, Spec: spec, Config: config}
	key, err := keyOf(plan)
	if err == nil && key != k.key {
		// Otherwise the sandbox would be handed to callers who requested something else.
		err = fault.New(fault.Internal, "pool_kind_differs", "a warm sandbox did not match its kind")
	}
	plan.Config.Preload = k.preload
	plan.Spec.Unhurried = true
	return plan, err
}

// bootWarm executes the steps of a creation without a caller.
func (p *Pool) bootWarm(w *warm, plan Plan) (err error) {
	w.id, w.control = plan.Row.ID, plan.Row.ControlToken
	w.env, err = p.deps.Instances.Boot(p.ctx, Boot{
		Plan: plan,
		Launch: func(ctx context.Context, spec engine.Spec, config guest.Config) error {
			w.restored = w.kind.snapshot != nil
			return p.launch(ctx, w.kind, spec, config)
		},
		Ready: func(ctx context.Context) error {
			w.guest = connect(w.kind.engine, w.id, w.control)
			return w.guest.postpone(ctx, time.Now().Add(warmLifetime))
		},
	})
	if err != nil && w.guest != nil {
		w.guest.close()
	}
	return err
}

// watch removes a warm sandbox that has ended.
func (p *Pool) watch(ctx context.Context, w *warm) {
	exit, err := w.kind.engine.Wait(ctx, w.id)
	if ctx.Err() != nil || !p.remove(w) {
		return
	}
	p.deps.Log.Warn("warm sandbox ended", "sandbox", w.id, "reason", exit.Reason, "err", err)
	p.discard(w)
	p.wakeNow()
}

// remove takes a sandbox out of the pool, and reports whether it was there.
func (p *Pool) remove(w *warm) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range w.kind.ready {
		if other == w {
			w.kind.ready = append(w.kind.ready[:i:i], w.kind.ready[i+1:]...)
			return true
		}
	}
	return false
}

// discard ends a sandbox that is not in the pool any more, and frees its resources. It retries
// failures; after a crash, Reconcile finds the row.
func (p *Pool) discard(w *warm) {
	if w.unwatch != nil {
		w.unwatch()
	}
	if w.guest != nil {
		w.guest.close()
	}
	err := p.deps.Instances.Discard(context.WithoutCancel(p.ctx), w.id)
	if err == nil {
		return
	}
	p.deps.Log.Error("warm sandbox not removed", "sandbox", w.id, "err", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.retry = time.Now().Add(demand.FailPause)
	p.failedRemovals = append(p.failedRemovals, w)
}
