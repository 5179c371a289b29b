package lifecycle_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// silentEngine is an engine whose calls all fail while it is silent, like those of an engine whose
// service does not run.
type silentEngine struct {
	*fake.Engine
	silent *atomic.Bool
}

const codeSilent = "engine_silent"

func (e silentEngine) err() error {
	if e.silent.Load() {
		return fault.New(fault.Unavailable, codeSilent, "the service does not answer")
	}
	return nil
}

// List implements engine.Engine.
func (e silentEngine) List(ctx context.Context) ([]engine.Status, error) {
	if err := e.err(); err != nil {
		return nil, err
	}
	return e.Engine.List(ctx)
}

// Create implements engine.Engine.
func (e silentEngine) Create(ctx context.Context, spec engine.Spec) error {
	if err := e.err(); err != nil {
		return err
	}
	return e.Engine.Create(ctx, spec)
}

// Wait implements engine.Engine.
func (e silentEngine) Wait(ctx context.Context, id string) (engine.Exit, error) {
	if err := e.err(); err != nil {
		return engine.Exit{}, err
	}
	return e.Engine.Wait(ctx, id)
}

// Remove implements engine.Engine.
func (e silentEngine) Remove(ctx context.Context, id string) error {
	if err := e.err(); err != nil {
		return err
	}
	return e.Engine.Remove(ctx, id)
}

// withSilent adds the engine other, which can be silent.
func (r *rig) withSilent(silent *atomic.Bool) option {
	return func(d *lifecycle.Deps) {
		e, err := fake.New(fake.Options{Dir: filepath.Join(r.dir, "run-other"), Name: "other", Guest: r.guest, Enforces: enforced})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(e.Close)
		d.Engines = fake.Registry(append(d.Engines.All(), silentEngine{e, silent})...)
	}
}

// An engine that does not answer must not keep a server from starting: the sandboxes of the other
// engines are used as before, and its own are neither lost nor forgotten.
func TestSilentEngineDoesNotBlockOthers(t *testing.T) {
	ctx, silent := t.Context(), new(atomic.Bool)
	r := newRig(t, func(*lifecycle.Deps) {})
	r.close()
	r.open(r.withSilent(silent))
	served, other := r.create(alice), r.create(alice, onEngine("other"))
	removed, orphan := r.create(alice, onEngine("other")), r.create(alice, onEngine("other"))
	r.close()

	silent.Store(true)
	r.open(r.withSilent(silent))
	if err := r.store.Delete(ctx, orphan.ID); err != nil {
		t.Fatal(err)
	}
	report, err := r.Reconcile(ctx)
	adopted := []string{served.ID, other.ID, removed.ID}
	slices.Sort(adopted)
	slices.Sort(report.Adopted)
	if err != nil || !slices.Equal(report.Adopted, adopted) || !slices.Equal(report.Silent, []string{"other"}) || len(report.Lost)+len(report.Orphans)+len(report.Failed) != 0 {
		t.Errorf("report with a silent engine: got %+v, %v", report, err)
	}
	if got := r.body(served.ID); got != served.ID {
		t.Errorf("a sandbox of the other engine answers %q", got)
	}
	if made := r.create(alice); made.Engine != "fake" {
		t.Errorf("a new sandbox is on %s", made.Engine)
	}
	_, err = r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Engine: "other"})
	wantKind(t, err, fault.Unavailable, codeSilent)
	wantKind(t, r.Remove(ctx, alice, removed.ID), fault.Unavailable, codeSilent)
	if sb, err := r.Get(ctx, alice, other.ID); err != nil || sb.State != sandbox.Running {
		t.Errorf("a sandbox of the silent engine is %s, %v", sb.State, err)
	}
	if got := len(r.instancesOn("other")); got != 3 {
		t.Errorf("the silent engine has %d sandboxes, want 3", got)
	}

	silent.Store(false)
	report = r.reconcile()
	if !slices.Equal(report.Orphans, []string{orphan.ID}) || len(report.Silent) != 0 {
		t.Errorf("when it answers again: %+v", report)
	}
	if got := r.instancesOn("other"); !slices.Equal(got, []string{other.ID}) {
		t.Errorf("the engine has %v, want %s", got, other.ID)
	}
	if got := r.body(other.ID); got != other.ID {
		t.Errorf("a sandbox of the engine answers %q", got)
	}
}
