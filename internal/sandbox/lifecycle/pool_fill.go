package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/demand"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/steps"
)

// fill makes one sandbox of a kind and lets it wait.
func (p *pool) fill(k *kind) error {
	began := time.Now()
	closed, err := p.s.closedPolicy(k)
	if err != nil {
		return err
	}
	p.breed(k, closed)
	w := &waiting{kind: k, looked: began}
	r, spec, config, err := p.s.vacant(k, closed)
	if err != nil {
		return err
	}
	w.id, w.control = r.ID, r.ControlToken
	if err = p.make(w, p.s.newBoot(r, closed, spec, config, source{})); err != nil {
		if left(err) {
			p.discard(w) // which tries again
		}
		return err
	}
	w.rehearsal = newRehearsal(config)
	bytes := p.s.usage(p.ctx, r.Engine, w.id)
	var ctx context.Context
	ctx, w.unwatch = context.WithCancel(p.ctx)
	p.mu.Lock()
	if bytes > 0 {
		k.measured = bytes
	}
	kept := !p.closed
	if kept {
		k.ready = append(k.ready, w)
	}
	p.mu.Unlock()
	if !kept {
		p.discard(w)
		return nil
	}
	p.watches.Go(func() { p.watch(ctx, w) })
	p.s.log.Debug("sandbox waits", "sandbox", w.id, "kind", k.name, "bytes", bytes, "restored", w.restored, "took", time.Since(began))
	return nil
}

// vacant plans a warm sandbox of a kind. It has no owner, an ID and tokens that no
// client knows, and nothing of any request.
func (s *Service) vacant(k *kind, closed *policy.Policy) (sandbox.Row, engine.Spec, guest.Config, error) {
	info := k.engine.Info()
	now := time.Now().UTC().Round(0)
	r := sandbox.Row{ControlToken: ids.NewToken(), Process: s.self, Sandbox: sandbox.Sandbox{
		ID: newID(), TemplateID: k.template.ID, Template: k.asked, State: sandbox.Waiting, StartedAt: now, EndAt: now.Add(waitFor),
		Limits: k.limits, AccessToken: ids.NewToken(), Engine: info.Name, Boundary: info.Boundary, Enforced: info.Enforces,
		Access: k.closedAccess().Settled(), PolicyLevel: closed.Level(), PolicyDigest: closed.Digest(),
	}}
	spec, config := rootfs.ComposeCovered(&r, k.template, closed, info.Shows, k.covered, k.noRoot, r.ID)
	key, err := keyOf(info.Name, spec, config, r.Access.Linked(), k.template)
	if err == nil && key != k.key {
		// It would be handed to callers who asked for something else.
		err = fault.New(fault.Internal, "pool_kind_differs", "a waiting sandbox would not be of its kind")
	}
	config.Preload = k.preload
	spec.Unhurried = true
	return r, spec, config, err
}

// stepGuest is the last step of a warm sandbox.
const stepGuest = "ask the guest to wait"

// make takes the steps of a creation without a caller.
func (p *pool) make(w *waiting, b *boot) error {
	s := p.s
	b.launch = func(ctx context.Context) error {
		w.env = b.env
		w.restored = w.kind.zygote != nil
		return p.launch(ctx, w.kind, b.spec, b.config)
	}
	row := steps.Step{Name: stepRow, Do: func(ctx context.Context) error { return s.store.Insert(ctx, b.row, s.settings.MaxLive) },
		Undo: func(ctx context.Context) error {
			// It has no owner who could ask what its programs did.
			if err := s.intake.Remove(w.id); err != nil {
				return err
			}
			return s.erase(ctx, w.id)
		}}
	wait := steps.Step{Name: stepGuest, Do: func(ctx context.Context) error {
		w.line = s.newLine(w.kind.engine, w.id, w.control)
		return w.line.putOff(ctx, time.Now().Add(waitFor))
	}, Undo: func(context.Context) error { w.line.close(); return nil }}
	return steps.Run(p.ctx, undoTimeout, slices.Concat([]steps.Step{row}, b.steps(), []steps.Step{wait})...)
}

// look is one probe of a warm sandbox, or another action on it that no caller asked
// for.
type look struct {
	over chan struct{}
	err  error // set before over is closed
}

// underWay reports whether the probe has started and not finished. A nil probe counts
// as finished.
func (l *look) underWay() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.over:
		return false
	default:
		return true
	}
}

// wait waits until it is over, and returns how it went.
func (l *look) wait(ctx context.Context) error {
	if l == nil {
		return nil
	}
	select {
	case <-l.over:
		return l.err
	case <-ctx.Done():
		return &untouchedError{canceled(context.Cause(ctx))}
	}
}

// look asks a waiting sandbox whether it is there, and keeps it from ending.
func (p *pool) look(w *waiting, l *look) {
	err := w.line.putOff(p.ctx, time.Now().Add(waitFor))
	l.err = err
	close(l.over)
	if err == nil || p.ctx.Err() != nil {
		return
	}
	if p.remove(w) {
		p.s.log.Warn("waiting sandbox does not answer", "sandbox", w.id, "err", err)
		p.discard(w)
	}
}

// watch removes a waiting sandbox that has ended.
func (p *pool) watch(ctx context.Context, w *waiting) {
	exit, err := w.kind.engine.Wait(ctx, w.id)
	if ctx.Err() != nil || !p.remove(w) {
		return
	}
	p.s.log.Warn("waiting sandbox ended", "sandbox", w.id, "reason", exit.Reason, "err", err)
	p.discard(w)
	p.nudge()
}

// remove takes one out, and reports whether it waited.
func (p *pool) remove(w *waiting) bool {
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

// discard frees all that one held that waits no more. What fails is tried
// again; after a crash, Reconcile finds the row.
func (p *pool) discard(w *waiting) {
	if w.unwatch != nil {
		w.unwatch()
	}
	if w.line != nil {
		w.line.close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), undoTimeout)
	defer cancel()
	err := p.s.locked(ctx, w.id, p.s.vacate)
	if err == nil {
		return
	}
	p.s.log.Error("waiting sandbox not removed", "sandbox", w.id, "err", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.retry = time.Now().Add(demand.FailPause)
	p.doomed = append(p.doomed, w)
}

// vacate removes a sandbox without an owner, and its row.
func (s *Service) vacate(ctx context.Context, id string) error {
	s.cut(id)
	errs := []error{s.removeInstance(ctx, id), s.access.DropValues(ctx, id, ""), s.access.Detach(ctx, id)}
	if err := errors.Join(append(errs, s.intake.Remove(id))...); err != nil {
		return err
	}
	return s.erase(ctx, id)
}
