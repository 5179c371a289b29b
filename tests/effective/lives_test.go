package effective_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/probe"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// routeError is the failed check of addNetwork.
const routeError = "there is a route out"

// createWithState creates a sandbox with something in its files and in its memory.
func (r *rig) createWithState() *crannog.Sandbox {
	r.t.Helper()
	sb := r.must()
	r.sh(sb, "echo before > /tmp/when; setsid sleep 31536 >/dev/null 2>&1 &")
	return sb
}

// requireState checks a sandbox's file, and whether its program runs.
func (r *rig) requireState(sb *crannog.Sandbox, when string, running bool) {
	r.t.Helper()
	want := when + " 0"
	if running {
		want = when + " 1"
	}
	if got := r.sh(sb, "echo $(cat /tmp/when) $(pgrep -cx sleep)"); got != want {
		r.t.Errorf("the state of %s: got %q, want %q", sb.ID(), got, want)
	}
}

// stateOf returns the state that the product shows.
func (r *rig) stateOf(sb *crannog.Sandbox) string {
	r.t.Helper()
	info, err := sb.Refresh(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return info.State
}

// P23: a sandbox whose restored instance would differ from the request stays paused, and its saved
// state is not lost.
func TestResumeRejectsDifferentInstance(t *testing.T) {
	for name, resume := range map[string]func(*crannog.Sandbox) error{
		"memory": func(sb *crannog.Sandbox) error { return sb.Resume(t.Context(), life) },
		"files":  func(sb *crannog.Sandbox) error { return sb.ResumeFiles(t.Context(), life) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sb := r.createWithState()
			if err := sb.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.engine.changeSpecs(r.addNetwork())
			err := resume(sb)
			r.engine.changeSpecs(nil)
			r.requireNotEffective(err, routeError)
			r.requireOnly(sb)
			if instances, err := r.engine.List(t.Context()); err != nil || len(instances) > 0 || r.stateOf(sb) != "paused" {
				t.Errorf("the sandbox is %s with the instances %v, %v, want paused without an instance", r.stateOf(sb), instances, err)
			}
			if err := resume(sb); err != nil {
				t.Fatal(err)
			}
			r.requireEffective(sb)
			r.requireState(sb, "before", name == "memory")
		})
	}
}

// P23: forks that differ from the request are not created, and their source keeps running.
func TestForkRejectsDifferentInstance(t *testing.T) {
	r := newRig(t)
	sb := r.createWithState()
	r.engine.changeSpecs(r.addNetwork())
	forks, err := sb.Fork(t.Context(), api.CreateFork{Count: 2})
	r.engine.changeSpecs(nil)
	if len(forks) > 0 {
		t.Errorf("got %d forks of a changed instance, want 0", len(forks))
	}
	r.requireNotEffective(err, routeError)
	r.requireOnly(sb)
	r.requireState(sb, "before", true)
	if forks, err = sb.Fork(t.Context(), api.CreateFork{Count: 2}); err != nil || len(forks) != 2 {
		t.Fatalf("fork the sandbox: got %d forks, %v, want 2", len(forks), err)
	}
	for _, f := range forks {
		r.killAtEnd(f)
		r.requireEffective(f)
		r.requireState(f, "before", true)
	}
}

// P23: a sandbox from a snapshot that differs from the request is not created, with memory or
// without.
func TestSnapshotRejectsDifferentInstance(t *testing.T) {
	r := newRig(t)
	sb := r.createWithState()
	for _, filesOnly := range []bool{false, true} {
		n, err := sb.Snapshot(t.Context(), api.CreateSnapshot{FilesOnly: filesOnly})
		if err != nil {
			t.Fatal(err)
		}
		r.engine.changeSpecs(r.addNetwork())
		_, err = r.create(crannog.Template(n.ID))
		r.engine.changeSpecs(nil)
		r.requireNotEffective(err, routeError)
		r.requireOnly(sb)
		r.requireState(r.must(crannog.Template(n.ID)), "before", !filesOnly)
		// Remove this round's sandboxes, because the next round checks that nothing is left.
		for id := range r.ids() {
			if other, err := r.client.Get(t.Context(), id); err == nil && id != sb.ID() {
				if err := other.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// P23: a sandbox whose rollback fails keeps its state, and can be rolled back later.
func TestRollbackRejectsDifferentInstance(t *testing.T) {
	r := newRig(t)
	sb := r.createWithState()
	n, err := sb.Snapshot(t.Context(), api.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	r.sh(sb, "echo after > /tmp/when")
	restores := map[string]func() error{
		"rollback": func() error { return sb.Rollback(t.Context(), n.ID) },
		"reset":    func() error { return sb.Reset(t.Context()) },
	}
	requireStays := func(state string) {
		t.Helper()
		for name, do := range restores {
			r.engine.changeSpecs(r.addNetwork())
			err := do()
			r.engine.changeSpecs(nil)
			r.requireNotEffective(err, routeError)
			r.requireOnly(sb)
			if now := r.stateOf(sb); now != state {
				t.Errorf("%s: the sandbox is %s", name, now)
			}
		}
	}
	requireStays("running")
	r.requireState(sb, "after", true)
	// The same holds for a paused sandbox.
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	requireStays("paused")
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Fatal(err)
	}
	r.requireState(sb, "after", true)
	if err := restores["rollback"](); err != nil {
		t.Fatal(err)
	}
	r.requireEffective(sb)
	r.requireState(sb, "before", true)
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := restores["reset"](); err != nil {
		t.Fatal(err)
	}
	r.requireEffective(sb)
	if got := r.sh(sb, "ls /tmp; pgrep -cx sleep; true"); got != "0" {
		t.Errorf("the reset sandbox: got %q, want no files and programs", got)
	}
}

// withoutBootChecks removes the checks of the guest at its boot, so that only the checks at the
// acquisition find a fault.
func withoutBootChecks(then func(*engine.Spec) error) func(*engine.Spec) error {
	return func(spec *engine.Spec) error {
		var c guest.Config
		if err := json.Unmarshal(spec.Boot.Config, &c); err != nil {
			return err
		}
		c.Checks = probe.Checks{}
		var err error
		if spec.Boot.Config, err = json.Marshal(c); err != nil {
			return err
		}
		return then(spec)
	}
}

// P23, P27: a warm sandbox that differs from the request is removed when it is acquired, and the
// caller gets another.
func TestPoolRejectsDifferentInstance(t *testing.T) {
	r := newRig(t)
	r.engine.changeSpecs(withoutBootChecks(r.addNetwork()))
	usual, err := v1.DefaultRequest()
	if err != nil {
		t.Fatal(err)
	}
	r.d.Service.StartPool(warmpool.Options{Bytes: 1 << 30, Defaults: []sandbox.CreateRequest{usual}})
	hasWarm := func() bool {
		status, _ := r.d.Service.Pool()
		return slices.ContainsFunc(status.Kinds, func(k warmpool.KindStatus) bool { return k.Waiting > 0 })
	}
	instances := func() (ids []string) {
		t.Helper()
		list, err := r.engine.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			ids = append(ids, m.ID)
		}
		return ids
	}
	acquire := func() *crannog.Sandbox {
		t.Helper()
		sb, err := r.client.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.killAtEnd(sb)
		r.requireEffective(sb)
		return sb
	}
	hosttest.Eventually(t, "a changed sandbox is warm", hasWarm)
	changed := r.engine.requestedIDs()
	if len(changed) != 1 {
		t.Fatalf("got the instances %v, want 1", changed)
	}
	r.engine.changeSpecs(nil)
	sb := acquire()
	if sb.ID() == changed[0] {
		t.Fatal("the changed sandbox was acquired")
	}
	hosttest.Eventually(t, "the changed sandbox is gone", func() bool { return !slices.Contains(instances(), changed[0]) })
	hosttest.EventuallyAtMost(t, "control groups", 0, func() int { return len(servetest.Groups(changed...)) })
	// Control: the caller gets a warm sandbox that is as requested.
	hosttest.Eventually(t, "an unchanged sandbox is warm", hasWarm)
	warm := instances()
	if got := acquire(); got.ID() == sb.ID() || !slices.Contains(warm, got.ID()) {
		t.Errorf("acquired %s, want one of the warm sandboxes %v", got.ID(), warm)
	}
}
