package lifecycle_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// failingMoves is a store whose moves fail while it is down.
type failingMoves struct {
	sandbox.Store
	down *atomic.Bool
}

func (f failingMoves) Move(ctx context.Context, id string, m sandbox.Move) (bool, error) {
	if f.down.Load() {
		return false, errInjected
	}
	return f.Store.Move(ctx, id, m)
}

// A sandbox whose end cannot be written ends as soon as it can be.
func TestFailedEndIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		r := newRig(t, func(d *lifecycle.Deps) { d.Store = failingMoves{d.Store, &down} })
		sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = time.Minute })
		down.Store(true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got, _ := r.Get(t.Context(), alice, sb.ID); got.State != sandbox.Running {
			t.Fatalf("state %s although no row could be written", got.State)
		}
		down.Store(false)
		time.Sleep(2 * time.Second)
		if got := r.stopped(sb.ID); got.Reason != "timeout" {
			t.Errorf("got reason %q, want timeout", got.Reason)
		}
		r.wantNothingLeft()
	})
}

// An instance of a paused sandbox that could not be removed is removed later, even if
// the sandbox is never resumed. The sandbox does not change by it.
func TestInstanceOfPausedSandboxIsRemovedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sb, running := r.create(alice, withLongTimeout), r.create(alice, withLongTimeout)
		r.state(sb.ID).Remember("x", "1")
		r.failAt(fake.RemoveBegin, errInjected)
		if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		instances := func() []engine.Status {
			list, err := r.engine.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		time.Sleep(2 * time.Minute)
		if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Paused || len(instances()) != 2 {
			t.Fatalf("the sandbox is %s, %v; held: %v", got.State, err, instances())
		}
		r.setFault(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if list := instances(); len(list) != 1 || list[0].ID != running.ID {
			t.Errorf("instances: got %v, want that of the running sandbox", list)
		}
		if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil || r.state(sb.ID).Memory("x") != "1" {
			t.Errorf("the sandbox does not continue: %v", err)
		}
	})
}

func withLongTimeout(c *sandbox.CreateRequest) { c.Timeout = 8 * time.Hour }

// failingWait is an engine whose Wait fails for a while.
type failingWait struct {
	*fake.Engine
	until time.Time
}

func (b failingWait) Wait(ctx context.Context, id string) (engine.Exit, error) {
	if time.Now().Before(b.until) {
		return engine.Exit{}, errInjected
	}
	return b.Engine.Wait(ctx, id)
}

// A failed Wait says nothing about the sandbox, and is repeated.
func TestWaitIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(d *lifecycle.Deps) {
			d.Engines = fake.Registry(failingWait{d.Engines.Default().(*fake.Engine), time.Now().Add(10 * time.Second)})
		})
		sb := r.create(alice)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, ok := r.Live(sb.ID); !ok {
			t.Error("the sandbox runs and does not count as live")
		}
		r.engine.Stop(sb.ID, engine.Exit{Reason: engine.ReasonOOM, At: time.Now()})
		time.Sleep(10 * time.Second)
		if got := r.stopped(sb.ID); got.Reason != "oom" {
			t.Errorf("got reason %q, want oom", got.Reason)
		}
	})
}

// unmetered is an engine without a meter. Programs inside see its limits, or it could not prove
// them.
type unmetered struct{ engine.Engine }

func (u unmetered) Info() engine.Info {
	info := u.Engine.Info()
	info.Shows = info.Enforces
	return info
}

// An engine without a meter returns an error instead of inventing figures.
func TestMetricsUnsupported(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Engines = fake.Registry(unmetered{d.Engines.Default()}) })
	sb := r.create(alice)
	_, err := r.Metrics(t.Context(), alice, sb.ID, time.Time{}, time.Time{})
	wantKind(t, err, fault.Unsupported, "metrics_unsupported")
}

// An ephemeral sandbox leaves no row when it is removed; one that ends by itself keeps its reason
// until its process closes.
func TestEphemeralSandboxLeavesNoRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ephemeral := func(c *sandbox.CreateRequest) { c.Ephemeral = true }
		removed, died := r.create(local, ephemeral), r.create(local, ephemeral)
		if err := r.Remove(t.Context(), local, removed.ID); err != nil {
			t.Fatal(err)
		}
		_, err := r.Get(t.Context(), local, removed.ID)
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
		r.engine.Stop(died.ID, engine.Exit{Reason: engine.ReasonOOM, At: time.Now()})
		if got := r.stopped(died.ID); got.Reason != "oom" {
			t.Errorf("got reason %q, want oom", got.Reason)
		}
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
		_, err = r.Get(t.Context(), local, died.ID)
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
		r.wantNothingLeft()
	})
}
