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

const wayOut = "there is a route out"

// begun is a sandbox with something in its files and in its memory.
func (r *rig) begun() *crannog.Sandbox {
	r.t.Helper()
	sb := r.must()
	r.sh(sb, "echo before > /tmp/when; setsid sleep 31536 >/dev/null 2>&1 &")
	return sb
}

// is checks that a sandbox is in the state in which it was.
func (r *rig) is(sb *crannog.Sandbox, when string, running bool) {
	r.t.Helper()
	want := when + " 0"
	if running {
		want = when + " 1"
	}
	if got := r.sh(sb, "echo $(cat /tmp/when) $(pgrep -cx sleep)"); got != want {
		r.t.Errorf("%s: %q, want %q", sb.ID(), got, want)
	}
}

func (r *rig) stateOf(sb *crannog.Sandbox) string {
	r.t.Helper()
	info, err := sb.Refresh(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return info.State
}

// P23: a sandbox that would be restored with another instance than the requested one stays paused,
// and nothing that was saved is lost.
func TestDisagreementAtResumption(t *testing.T) {
	for name, resume := range map[string]func(*crannog.Sandbox) error{
		"memory": func(sb *crannog.Sandbox) error { return sb.Resume(t.Context(), life) },
		"files":  func(sb *crannog.Sandbox) error { return sb.ResumeFiles(t.Context(), life) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sb := r.begun()
			if err := sb.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.engine.changeSpecs(r.wayOut())
			err := resume(sb)
			r.engine.changeSpecs(nil)
			r.refused(err, wayOut)
			r.onlyLeft(sb)
			if machines, err := r.engine.List(t.Context()); err != nil || len(machines) > 0 || r.stateOf(sb) != "paused" {
				t.Errorf("it is %s, with %v, %v", r.stateOf(sb), machines, err)
			}
			if err := resume(sb); err != nil {
				t.Fatal(err)
			}
			r.effective(sb)
			r.is(sb, "before", name == "memory")
		})
	}
}

// P23: copies that differ from the request are not made; their source keeps running.
func TestDisagreementOfCopies(t *testing.T) {
	r := newRig(t)
	sb := r.begun()
	r.engine.changeSpecs(r.wayOut())
	forks, err := sb.Fork(t.Context(), api.CreateFork{Count: 2})
	r.engine.changeSpecs(nil)
	if len(forks) > 0 {
		t.Errorf("%d copies came about", len(forks))
	}
	r.refused(err, wayOut)
	r.onlyLeft(sb)
	r.is(sb, "before", true)
	if forks, err = sb.Fork(t.Context(), api.CreateFork{Count: 2}); err != nil || len(forks) != 2 {
		t.Fatal(len(forks), err)
	}
	for _, f := range forks {
		r.ends(f)
		r.effective(f)
		r.is(f, "before", true)
	}
}

// P23: the same holds for what is made from a snapshot, with its memory and without.
func TestDisagreementOfSnapshots(t *testing.T) {
	r := newRig(t)
	sb := r.begun()
	for _, without := range []bool{false, true} {
		n, err := sb.Snapshot(t.Context(), api.CreateSnapshot{FilesOnly: without})
		if err != nil {
			t.Fatal(err)
		}
		r.engine.changeSpecs(r.wayOut())
		_, err = r.create(crannog.Template(n.ID))
		r.engine.changeSpecs(nil)
		r.refused(err, wayOut)
		r.onlyLeft(sb)
		r.is(r.must(crannog.Template(n.ID)), "before", !without)
		// The next round looks for what is left of this one.
		for id := range r.ids() {
			if other, err := r.client.Get(t.Context(), id); err == nil && id != sb.ID() {
				if err := other.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// P23: a sandbox that cannot be put back keeps running as it is, and can be put
// back later.
func TestDisagreementAtRollback(t *testing.T) {
	r := newRig(t)
	sb := r.begun()
	n, err := sb.Snapshot(t.Context(), api.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	r.sh(sb, "echo after > /tmp/when")
	back := map[string]func() error{
		"rollback": func() error { return sb.Rollback(t.Context(), n.ID) },
		"reset":    func() error { return sb.Reset(t.Context()) },
	}
	stays := func(state string) {
		t.Helper()
		for name, do := range back {
			r.engine.changeSpecs(r.wayOut())
			err := do()
			r.engine.changeSpecs(nil)
			r.refused(err, wayOut)
			r.onlyLeft(sb)
			if now := r.stateOf(sb); now != state {
				t.Errorf("%s: it is %s", name, now)
			}
		}
	}
	stays("running")
	r.is(sb, "after", true)
	// The same holds for a paused sandbox.
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	stays("paused")
	if err := sb.Resume(t.Context(), life); err != nil {
		t.Fatal(err)
	}
	r.is(sb, "after", true)
	if err := back["rollback"](); err != nil {
		t.Fatal(err)
	}
	r.effective(sb)
	r.is(sb, "before", true)
	if err := sb.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := back["reset"](); err != nil {
		t.Fatal(err)
	}
	r.effective(sb)
	if got := r.sh(sb, "ls /tmp; pgrep -cx sleep; true"); got != "0" {
		t.Errorf("put back to its start it has %q", got)
	}
}

// blind removes the checks that an instance's guest makes at its boot, so that only the check when
// the sandbox is acquired finds something.
func blind(then func(*engine.Spec) error) func(*engine.Spec) error {
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
func TestDisagreementAtClaim(t *testing.T) {
	r := newRig(t)
	r.engine.changeSpecs(blind(r.wayOut()))
	usual, err := v1.DefaultRequest()
	if err != nil {
		t.Fatal(err)
	}
	r.d.Service.StartPool(warmpool.Options{Bytes: 1 << 30, Defaults: []sandbox.CreateRequest{usual}})
	waits := func() bool {
		status, _ := r.d.Service.Pool()
		return slices.ContainsFunc(status.Kinds, func(k warmpool.KindStatus) bool { return k.Waiting > 0 })
	}
	machines := func() (ids []string) {
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
	claim := func() *crannog.Sandbox {
		t.Helper()
		sb, err := r.client.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.ends(sb)
		r.effective(sb)
		return sb
	}
	hosttest.Eventually(t, "a crooked one waits", waits)
	specChanger := r.engine.asked()
	if len(specChanger) != 1 {
		t.Fatalf("%v were made", specChanger)
	}
	r.engine.changeSpecs(nil)
	sb := claim()
	if sb.ID() == specChanger[0] {
		t.Fatal("it was handed over")
	}
	hosttest.Eventually(t, "the crooked one is gone", func() bool { return !slices.Contains(machines(), specChanger[0]) })
	hosttest.NoMore(t, "control groups", 0, func() int { return len(servetest.Groups(specChanger...)) })
	// The control: the caller gets a warm sandbox that is as requested.
	hosttest.Eventually(t, "a straight one waits", waits)
	waiting := machines()
	if got := claim(); got.ID() == sb.ID() || !slices.Contains(waiting, got.ID()) {
		t.Errorf("claimed %s, and there were %v", got.ID(), waiting)
	}
}
