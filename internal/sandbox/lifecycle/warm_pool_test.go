package lifecycle_test

import (
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/probe"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// A warm sandbox becomes the caller's as a whole, and another takes its place.
func TestPoolHandsOut(t *testing.T) {
	p := newPoolRig(t)
	p.start(plain, opened)
	for _, req := range []sandbox.CreateRequest{plain, opened} {
		ready := p.rows()
		req.Name, req.Timeout = "web", time.Hour
		req.Env, req.Metadata = map[string]string{"A": "b"}, map[string]string{"m": "n"}
		req.PrivatePorts = true
		sb, err := p.Create(t.Context(), alice, req)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(ready, func(r sandbox.Row) bool { return r.ID == sb.ID })
		if i < 0 {
			t.Fatalf("%s was not a warm sandbox", sb.ID)
		}
		boot, claim, _ := p.configs(sb.ID)
		if sb.AccessToken == ready[i].AccessToken || claim.AccessToken != sb.AccessToken || claim.ControlToken != boot.ControlToken {
			t.Error("the tokens are not those of the claim")
		}
		if claim.Hostname != "web" || claim.SandboxID != sb.ID || claim.Env["A"] != "b" || claim.Env["E2B_SANDBOX_ID"] != sb.ID || !claim.EndAt.Equal(sb.EndAt) {
			t.Errorf("claimed as %+v", claim)
		}
		if boot.Hostname != sb.ID || boot.Env["A"] != "" || boot.EndAt.IsZero() {
			t.Errorf("booted as %+v", boot)
		}
		got, err := p.Get(t.Context(), alice, sb.ID)
		if err != nil || got.State != sandbox.Running || got.Metadata["m"] != "n" || got.TrafficToken == "" || got.Owner != "alice" || !got.EndAt.Equal(sb.EndAt) {
			t.Errorf("row: got %+v, %v", got, err)
		}
		if output := p.body(sb.ID); output != sb.ID {
			t.Errorf("the output of the program is %q, want the sandbox's ID", output)
		}
		if err := p.Remove(t.Context(), alice, sb.ID); err != nil {
			t.Error(err)
		}
		p.awaitWarm(2)
	}
}

// P2: no caller learns of a warm sandbox, and it counts against no caller's limit.
func TestWarmSandboxesAreHidden(t *testing.T) {
	p := newPoolRig(t, func(d *lifecycle.Deps) { d.Settings.MaxLive = 1 })
	p.start(opened)
	id := p.rows()[0].ID
	ctx := t.Context()
	for _, caller := range []sandbox.Principal{local, alice} {
		for _, ref := range []string{id, id[:4]} {
			_, err := p.Get(ctx, caller, ref)
			wantKind(t, err, fault.NotFound, "sandbox_not_found")
			wantKind(t, p.Remove(ctx, caller, ref), fault.NotFound, "sandbox_not_found")
		}
		page, err := p.List(ctx, caller, sandbox.Filter{})
		if err != nil || len(page.Sandboxes) != 0 || page.Running != 0 {
			t.Errorf("list: got %+v, %v; want no warm sandbox", page, err)
		}
	}
	if _, ok := p.Live(id); ok || p.Gone(id) != nil {
		t.Error("a warm sandbox is reachable")
	}
	if _, err := p.Dial(ctx, id, 8080); fault.KindOf(err) != fault.NotFound {
		t.Errorf("dial of a warm sandbox: got error %v, want NotFound", err)
	}
	sb, err := p.Create(ctx, alice, opened)
	if err != nil || sb.ID != id {
		t.Fatalf("creation: got sandbox %s, %v; want the warm one", sb.ID, err)
	}
	// Control: its owner finds it by all of these.
	for _, ref := range []string{id, id[:4]} {
		if _, err := p.Get(ctx, local, ref); err != nil {
			t.Error(err)
		}
	}
	if c, err := p.Dial(ctx, id, 8080); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

// P27: before it is acquired a sandbox reaches nothing and holds no secret; then its owner's policy
// applies, and its guest checks that.
func TestWarmSandboxHasNoAccess(t *testing.T) {
	p := newPoolRig(t, func(d *lifecycle.Deps) { d.Engines = fake.Registry(boundaryEngine{d.Engines.Default()}) })
	p.start(opened)
	row := p.rows()[0]
	before := p.fakeGateway.all()[row.ID]
	if before.Policy.Reachable("example.com") || before.Owner != "" || before.Secrets != nil {
		t.Errorf("attached as %+v", before)
	}
	boot, _, _ := p.configs(row.ID)
	if len(boot.Checks.Unknown) == 0 || len(boot.Checks.Refused) == 0 {
		t.Errorf("booted with the checks %+v", boot.Checks)
	}
	req := opened
	req.Access = accessWithHeader(t, "sesame-open-now")
	sb, err := p.Create(t.Context(), alice, req)
	if err != nil || sb.ID != row.ID {
		t.Fatalf("creation: got sandbox %s, %v; want the warm one", sb.ID, err)
	}
	after := p.fakeGateway.all()[row.ID]
	if !after.Policy.Reachable("example.com") || after.Owner != "alice" || len(after.Secrets) != 1 || after.Secrets[0].Value != "sesame-open-now" {
		t.Errorf("claimed as %+v", after)
	}
	if m, err := p.Redactor(t.Context(), sb.ID); err != nil || string(m.Bytes().Bytes([]byte("sesame-open-now"))) == "sesame-open-now" {
		t.Errorf("the bound value is not redacted: %v", err)
	}
}

// P27: an acquisition skips no check that a boot would make.
func TestAcquireChecksLikeBoot(t *testing.T) {
	narrow := sandbox.CreateRequest{Template: "base", Access: sandbox.Access{Allow: []string{"listed.example"}}}
	checks := func(start bool) (probe.Checks, sandbox.Sandbox) {
		p := newPoolRig(t, func(d *lifecycle.Deps) { d.Engines = fake.Registry(boundaryEngine{d.Engines.Default()}) })
		if start {
			p.start(opened)
		}
		sb, err := p.Create(t.Context(), alice, narrow)
		if err != nil {
			t.Fatal(err)
		}
		boot, claim, claimed := p.configs(sb.ID)
		if claimed != start {
			t.Fatalf("a warm sandbox was acquired: got %t, want %t", claimed, start)
		}
		if start {
			return claim.Checks, sb
		}
		return boot.Checks, sb
	}
	cold, made := checks(false)
	warm, given := checks(true)
	if !reflect.DeepEqual(cold, warm) || !slices.Equal(made.Checked, given.Checked) || !slices.Equal(cold.Known, []string{"listed.example"}) {
		t.Errorf("a boot checks %+v, a claim %+v", cold, warm)
	}
}

// boundaryEngine is the fake with a boundary, so that there is something to check.
type boundaryEngine struct{ engine.Engine }

func (w boundaryEngine) Info() engine.Info {
	info := w.Engine.Info()
	info.Boundary, info.Shows = engine.UserspaceKernel, info.Enforces
	return info
}

// A request whose differences cannot be applied after a boot gets a new sandbox.
func TestOtherKindsAreNotTakenFromPool(t *testing.T) {
	p := newPoolRig(t)
	p.start(opened)
	limited := opened
	limited.Limits.MemoryBytes = 256 << 20
	other := opened
	other.Template = "code-interpreter-v1"
	shown := opened
	shown.Workspace = t.TempDir()
	for name, req := range map[string]sandbox.CreateRequest{"limits": limited, "template": other, "workspace": shown, "no link": plain} {
		sb, err := p.Create(t.Context(), local, req)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, claimed := p.configs(sb.ID); claimed {
			t.Errorf("request with another %s: a warm sandbox was acquired", name)
		}
	}
	sb, err := p.Create(t.Context(), local, opened)
	if _, _, claimed := p.configs(sb.ID); err != nil || !claimed {
		t.Errorf("the same: claimed %t, %v", claimed, err)
	}
}

// A sandbox that starts from a snapshot is made from it, even if others are warm.
func TestSnapshotsAreNotTakenFromPool(t *testing.T) {
	p := newPoolRig(t)
	p.start(opened)
	sb, err := p.Create(t.Context(), alice, opened)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := p.Snapshot(t.Context(), alice, sb.ID, sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p.awaitWarm(1)
	from := opened
	from.Template = snap.ID
	made, err := p.Create(t.Context(), alice, from)
	if err != nil {
		t.Fatal(err)
	}
	boot, _, claimed := p.configs(made.ID)
	if claimed || boot.Renew != guest.Copied || made.Origin != snap.ID {
		t.Errorf("claimed %t, booted as %q from %q", claimed, boot.Renew, made.Origin)
	}
}

// A fault of the pool costs a caller nothing but time, and the failed sandbox is removed.
func TestPoolFailureOnlyDelaysCaller(t *testing.T) {
	p := newPoolRig(t)
	p.start(opened)
	answer := func(status int, text string) func() {
		return func() { p.setRefuse(func(guest.Config) (int, string) { return status, text }) }
	}
	for name, fail := range map[string]func(){
		"policy does not hold": answer(http.StatusConflict, probe.Failure+"x"),
		"refused":              answer(http.StatusConflict, "no"),
		"no claims":            answer(http.StatusNotFound, "no"),
		"lost link":            func() { p.fakeGateway.failWith(errors.New("lost")) },
	} {
		rows := p.rows()
		id := rows[len(rows)-1].ID // the oldest is taken first
		fail()
		sb, err := p.Create(t.Context(), alice, opened)
		if err != nil || sb.ID == id {
			t.Errorf("%s: got sandbox %s, %v; want a new one", name, sb.ID, err)
		}
		p.setRefuse(nil)
		p.fakeGateway.failWith(nil)
		hosttest.Eventually(t, "the one that failed is gone", func() bool {
			_, err := p.store.Get(t.Context(), id)
			_, exists := p.fakeGateway.all()[id]
			return fault.KindOf(err) == fault.NotFound && !exists
		})
		p.awaitWarm(1)
	}
}

// A fault of the request uses up no warm sandbox, or leaves nothing.
func TestFailedAcquireLeavesNothing(t *testing.T) {
	p := newPoolRig(t, func(d *lifecycle.Deps) { d.Settings.MaxLive = 1 })
	p.start(opened)
	id := p.rows()[0].ID
	unbound := opened
	unbound.Access = accessWithHeader(t, "sesame-open-now")
	unbound.Access.Values = nil
	if _, err := p.Create(t.Context(), alice, unbound); err == nil {
		t.Error("a policy whose value is missing is accepted")
	}
	named := opened
	named.Name = "web"
	first, err := p.Create(t.Context(), alice, named)
	if err != nil || first.ID != id || len(p.values.values[id]) != 0 {
		t.Fatalf("creation: got sandbox %s, %v; values that remain: %v", first.ID, err, p.values.values)
	}
	if err := p.Remove(t.Context(), alice, first.ID); err != nil {
		t.Fatal(err)
	}
	p.awaitWarm(1)
	p.wantCleanClose()
}

// A name that is taken is refused without using up a warm sandbox.
func TestTakenNameUsesNoWarmSandbox(t *testing.T) {
	p := newPoolRig(t)
	p.start(opened)
	named := opened
	named.Name = "web"
	if _, err := p.Create(t.Context(), alice, named); err != nil {
		t.Fatal(err)
	}
	p.awaitWarm(1)
	id := p.rows()[0].ID
	_, err := p.Create(t.Context(), alice, named)
	wantKind(t, err, fault.Exists, "sandbox_name_taken")
	if rows := p.rows(); len(rows) != 1 || rows[0].ID != id {
		t.Errorf("warm sandboxes are now %v", rows)
	}
	if sb, err := p.Create(t.Context(), bob, named); err != nil || sb.ID != id {
		t.Errorf("the name for another owner: %s, %v", sb.ID, err)
	}
}

// P27: two acquired sandboxes never share anything, even if many callers race and
// warm sandboxes die at the same time.
func TestAcquiredSandboxesShareNothing(t *testing.T) {
	p := newPoolRig(t)
	p.start()
	var burst sync.WaitGroup
	for range 6 {
		burst.Go(func() { p.create(alice) })
	}
	burst.Wait() // so that several are wanted
	p.awaitWarm(3)
	for _, r := range p.rows()[:2] {
		p.engine.Stop(r.ID, engine.Exit{Reason: engine.ReasonOOM, At: time.Now()})
	}
	seen := map[string]int{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			sb, err := p.Create(t.Context(), alice, plain)
			if err != nil {
				t.Error(err)
				return
			}
			r, err := p.store.Get(t.Context(), sb.ID)
			if err != nil || r.AccessToken != sb.AccessToken {
				t.Errorf("row: got %+v, %v", r, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, what := range []string{sb.ID, sb.AccessToken, r.ControlToken} {
				seen[what]++
			}
		})
	}
	group.Wait()
	if len(seen) != 60 {
		t.Errorf("%d different IDs and tokens of 60", len(seen))
	}
	p.mu.Lock()
	n := len(p.claimed)
	p.mu.Unlock()
	if n == 0 {
		t.Error("none was claimed")
	}
}

// The warm sandboxes of a dead process are removed; those of a living one stay.
func TestReconcileWarmSandboxes(t *testing.T) {
	first := newPoolRig(t, func(d *lifecycle.Deps) { d.Process = sandbox.Process{PID: 4, Start: "first"} })
	first.start(opened)
	id := first.rows()[0].ID
	dead := false
	second := newRigOn(first, func(d *lifecycle.Deps) { d.Alive = func(sandbox.Process) bool { return !dead } })
	defer second.close()
	if report := second.reconcile(); !slices.Equal(report.Left, []string{id}) {
		t.Errorf("warm sandbox of a live process: %+v", report)
	}
	dead = true
	if report := second.reconcile(); !slices.Equal(report.Abandoned, []string{id}) {
		t.Errorf("warm sandbox of a dead process: %+v", report)
	}
	held, err := first.engine.List(t.Context())
	if err != nil || slices.ContainsFunc(held, func(s engine.Status) bool { return s.ID == id }) {
		t.Errorf("instances remain: %v, %v", held, err)
	}
}

// newRigOn returns another process with the same state.
func newRigOn(p *poolRig, options ...option) *rig {
	r := &rig{t: p.t, dir: p.dir, ends: map[string]time.Time{}}
	r.open(append([]option{p.withClaims}, options...)...)
	return r
}
