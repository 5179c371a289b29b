package lifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/steps"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
)

// StartPool starts the warm pool, which runs until Close. It is called once, after Reconcile, and
// only by a long-running process.
func (s *Service) StartPool(o warmpool.Options) {
	d := warmpool.Deps{
		Instances: warmInstances{s}, Engines: s.engines.Registry, Access: s.access, Rows: s.store, Admission: s.starts.queue,
		MaxLive: s.settings.MaxLive, Log: s.log,
	}
	if s.states.Available() == nil {
		d.Drafts = s.states.Draft
	}
	p := warmpool.New(d, o)
	if !s.pool.CompareAndSwap(nil, p) {
		panic("sandbox: the pool was started before")
	}
	p.Start()
}

// Pool describes the warm sandboxes, and reports whether the pool is in use.
func (s *Service) Pool() (warmpool.Status, bool) { return s.pool.Load().Status() }

// warmInstances gives package warmpool access to the sandboxes of a Service.
type warmInstances struct{ s *Service }

// Plan implements warmpool.Instances.
func (w warmInstances) Plan(ctx context.Context, req sandbox.CreateRequest) (warmpool.Plan, error) {
	r, template, p, err := w.s.planner.plan(ctx, sandbox.Principal{Local: true}, req)
	if err != nil {
		return warmpool.Plan{}, err
	}
	spec, config, _, err := rootfs.Compose(&r, template, p, w.s.engines.info(r.Engine))
	return warmpool.Plan{Row: r, Template: template, Policy: p, Spec: spec, Config: config}, err
}

// Reserve implements warmpool.Instances.
func (w warmInstances) Reserve() sandbox.Row {
	return sandbox.Row{ControlToken: ids.NewToken(), Process: w.s.process.self, Sandbox: sandbox.Sandbox{ID: newID(), AccessToken: ids.NewToken()}}
}

// stepGuest is the last step of a warm sandbox.
const stepGuest = "extend the guest's end"

// Boot implements warmpool.Instances: it executes the steps of a creation without a caller.
func (w warmInstances) Boot(ctx context.Context, warm warmpool.Boot) (map[string]string, error) {
	s := w.s
	b := s.newBoot(warm.Row, warm.Policy, warm.Spec, warm.Config, source{})
	if n := warm.Template.Origin; n != nil {
		b.from = fromSnapshot(*n, guest.Copied) // the template's memory
	} else {
		b.launch = func(ctx context.Context) error { return warm.Launch(ctx, b.spec, b.config) }
	}
	row := steps.Step{Name: stepRow, Do: func(ctx context.Context) error { return s.store.Insert(ctx, b.row, s.settings.MaxLive) },
		Undo: func(ctx context.Context) error {
			// The sandbox has no owner who could read its programs' events.
			if err := s.intake.Remove(b.row.ID); err != nil {
				return err
			}
			return s.erase(ctx, b.row.ID)
		}}
	err := steps.Run(ctx, undoTimeout, slices.Concat([]steps.Step{row}, b.steps(), []steps.Step{{Name: stepGuest, Do: warm.Ready}})...)
	return b.env, err
}

// Adopt implements warmpool.Instances.
func (w warmInstances) Adopt(ctx context.Context, r sandbox.Row, handOver func(context.Context) error) (sandbox.Sandbox, error) {
	s, started := w.s, time.Now()
	ctx, release, err := s.operations.beginNew(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer release()
	if err := handOver(ctx); err != nil {
		s.untrack(r.ID) // nothing of the request may have reached it
		return sandbox.Sandbox{}, err
	}
	return s.created(ctx, r, started, "pool"), nil
}

// Record implements warmpool.Instances.
func (w warmInstances) Record(ctx context.Context, r sandbox.Row) error {
	return w.s.recordStart(ctx, r, "pool")
}

// Discard implements warmpool.Instances.
func (w warmInstances) Discard(ctx context.Context, id string) error {
	s := w.s
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	return s.operations.locked(ctx, id, func(ctx context.Context, id string) error {
		s.untrack(id)
		errs := []error{s.removeInstance(ctx, id), s.access.DropValues(ctx, id, ""), s.access.Detach(ctx, id)}
		if err := errors.Join(append(errs, s.intake.Remove(id))...); err != nil {
			return err
		}
		return s.erase(ctx, id)
	})
}

// Busy implements warmpool.Instances.
func (w warmInstances) Busy() bool {
	return w.s.operations.busy()
}
