package lifecycle_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// withEngine adds an engine with a name and a boundary to those of a rig.
func (r *rig) withEngine(name string, boundary engine.Boundary) option {
	return func(d *lifecycle.Deps) {
		e, err := fake.New(fake.Options{
			Dir: filepath.Join(r.dir, "run-"+name), Name: name, Boundary: boundary, Guest: r.guest, Enforces: enforced,
		})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(e.Close)
		d.Engines = fake.Registry(append(d.Engines.All(), e)...)
	}
}

// newRigWithTwoEngines returns a rig with the engines fake, which is the default, and other.
func newRigWithTwoEngines(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), ends: make(map[string]time.Time)}
	r.open(r.withEngine("other", engine.NoBoundary))
	t.Cleanup(func() {
		r.close()
		r.engine.Close()
	})
	return r
}

// onEngine returns an option that requests an engine.
func onEngine(name string) func(*sandbox.CreateRequest) {
	return func(c *sandbox.CreateRequest) { c.Engine = name }
}

// instancesOn returns the IDs of the instances on an engine of the rig.
func (r *rig) instancesOn(name string) []string {
	r.t.Helper()
	dir := "run"
	if name != "fake" {
		dir = "run-" + name
	}
	e, err := fake.New(fake.Options{Dir: filepath.Join(r.dir, dir)})
	if err != nil {
		r.t.Fatal(err)
	}
	list, err := e.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var ids []string
	for _, status := range list {
		ids = append(ids, status.ID)
	}
	slices.Sort(ids)
	return ids
}

func TestSandboxUsesRequestedEngine(t *testing.T) {
	r, ctx := newRigWithTwoEngines(t), t.Context()
	first, other := r.create(alice), r.create(alice, onEngine("other"))
	if first.Engine != "fake" || other.Engine != "other" {
		t.Fatalf("the engines are %q and %q", first.Engine, other.Engine)
	}
	if got := r.instancesOn("other"); !slices.Equal(got, []string{other.ID}) || !slices.Equal(r.instancesOn("fake"), []string{first.ID}) {
		t.Errorf("other holds %v and fake %v", got, r.instancesOn("fake"))
	}
	conn, err := r.Dial(ctx, other.ID, 8080)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := r.Pause(ctx, alice, other.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Resume(ctx, alice, other.ID, 0); err != nil || !slices.Equal(r.instancesOn("other"), []string{other.ID}) {
		t.Errorf("resumed: %v; other holds %v", err, r.instancesOn("other"))
	}
	forks, err := r.Fork(ctx, alice, other.ID, sandbox.ForkRequest{Count: 1})
	if err != nil || forks[0].Err != nil || forks[0].Sandbox.Engine != "other" {
		t.Fatalf("the copy is %+v, %v", forks, err)
	}
	if err := r.Remove(ctx, alice, other.ID); err != nil || !slices.Equal(r.instancesOn("other"), []string{forks[0].Sandbox.ID}) {
		t.Errorf("removed: %v; other holds %v", err, r.instancesOn("other"))
	}
	_, err = r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Engine: "none"})
	wantKind(t, err, fault.Invalid, engine.CodeUnknown)
	if !strings.Contains(fault.HintOf(err), "fake, other") {
		t.Errorf("the hint is %q", fault.HintOf(err))
	}
}

func TestMemoryIsRestoredBySameEngine(t *testing.T) {
	r, ctx := newRigWithTwoEngines(t), t.Context()
	sb := r.create(alice, onEngine("other"))
	memory, err := r.Snapshot(ctx, alice, sb.ID, sandbox.SnapshotRequest{})
	if err != nil || memory.Engine != "other" {
		t.Fatalf("snapshot of memory: got %+v, %v; want engine other", memory, err)
	}
	files, err := r.Snapshot(ctx, alice, sb.ID, sandbox.SnapshotRequest{FilesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	from := func(id string) func(*sandbox.CreateRequest) {
		return func(c *sandbox.CreateRequest) { c.Template = id }
	}
	for name, c := range map[string]struct {
		of     string
		asked  string
		engine string
	}{
		"memory, no engine":  {memory.ID, "", "other"},
		"memory, its engine": {memory.ID, "other", "other"},
		"files, no engine":   {files.ID, "", "other"},
		"files, another":     {files.ID, "fake", "fake"},
	} {
		if made := r.create(alice, from(c.of), onEngine(c.asked)); made.Engine != c.engine {
			t.Errorf("%s: the sandbox is on %s, want %s", name, made.Engine, c.engine)
		}
	}
	_, err = r.Create(ctx, alice, sandbox.CreateRequest{Template: memory.ID, Engine: "fake"})
	wantKind(t, err, fault.Invalid, "snapshot_engine")
	_, err = r.Rollback(ctx, alice, r.create(alice).ID, memory.ID)
	wantKind(t, err, fault.Invalid, "snapshot_other_machine")
	if _, err := r.Rollback(ctx, alice, sb.ID, memory.ID); err != nil {
		t.Errorf("rollback on the same engine: %v", err)
	}
}

// A process without the engine of a row can neither see whether the sandbox runs nor end it, so
// it must not treat the sandbox as lost.
func TestMissingEngineLosesNoSandbox(t *testing.T) {
	r, ctx := newRigWithTwoEngines(t), t.Context()
	served, running := r.create(alice), r.create(alice, onEngine("other"))
	paused, stopping := r.create(alice, onEngine("other")), r.create(alice, onEngine("other"))
	snap, err := r.Snapshot(ctx, alice, running.ID, sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pause(ctx, alice, paused.ID, false); err != nil {
		t.Fatal(err)
	}
	before := r.instancesOn("other")
	r.close()

	r.open()
	if _, err := r.store.Move(ctx, stopping.ID, sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, Reason: "killed"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.SetEnd(ctx, running.ID, time.Now().Add(-time.Hour), false); err != nil {
		t.Fatal(err)
	}
	report, err := r.Reconcile(ctx)
	unserved := []string{running.ID, stopping.ID}
	slices.Sort(unserved)
	slices.Sort(report.Unserved)
	if err != nil || !slices.Equal(report.Unserved, unserved) || !slices.Equal(report.Adopted, []string{served.ID}) {
		t.Errorf("report without the engine: got %+v, %v", report, err)
	}
	if _, err := r.Prune(ctx, sandbox.Principal{Local: true}); err != nil {
		t.Errorf("prune: %v", err)
	}
	for id, want := range map[string]sandbox.State{running.ID: sandbox.Running, paused.ID: sandbox.Paused, stopping.ID: sandbox.Stopping} {
		if sb, err := r.Get(ctx, alice, id); err != nil || sb.State != want || sb.Engine != "other" {
			t.Errorf("the row of %s is %s on %s (%v), want %s", id, sb.State, sb.Engine, err, want)
		}
	}
	for name, act := range map[string]func(id string) error{
		"remove":   func(id string) error { return r.Remove(ctx, alice, id) },
		"forget":   func(id string) error { return r.Forget(ctx, alice, id) },
		"pause":    func(id string) error { _, err := r.Pause(ctx, alice, id, false); return err },
		"resume":   func(id string) error { _, _, err := r.Resume(ctx, alice, id, 0); return err },
		"reset":    func(id string) error { _, err := r.Reset(ctx, alice, id); return err },
		"snapshot": func(id string) error { _, err := r.Snapshot(ctx, alice, id, sandbox.SnapshotRequest{}); return err },
		"fork":     func(id string) error { _, err := r.Fork(ctx, alice, id, sandbox.ForkRequest{Count: 1}); return err },
		"timeout":  func(id string) error { _, err := r.SetTimeout(ctx, alice, id, time.Hour); return err },
		"end now":  func(id string) error { _, err := r.SetTimeout(ctx, alice, id, 0); return err },
		"dial": func(id string) error {
			conn, err := r.Dial(ctx, id, 8080)
			if err == nil {
				conn.Close()
			}
			return err
		},
		"metrics": func(id string) error { _, err := r.Metrics(ctx, alice, id, time.Time{}, time.Time{}); return err },
		"access": func(id string) error {
			_, err := r.SetAccess(ctx, alice, id, func(a sandbox.Access) (sandbox.Access, error) { return a, nil })
			return err
		},
	} {
		for _, id := range []string{running.ID, paused.ID} {
			if err := act(id); fault.CodeOf(err) != engine.CodeUnavailable {
				t.Errorf("%s of %s without the engine: got error %v", name, id, err)
			}
		}
		if name == "pause" {
			continue
		}
		// The same request succeeds where the engine is registered.
		if err := act(served.ID); fault.CodeOf(err) == engine.CodeUnavailable {
			t.Errorf("%s of a sandbox whose engine is there: %v", name, err)
		}
		if sb, err := r.Get(ctx, alice, served.ID); err != nil || sb.State != sandbox.Running {
			served = r.create(alice)
		}
	}
	_, err = r.Create(ctx, alice, sandbox.CreateRequest{Template: snap.ID})
	wantKind(t, err, fault.Unsupported, engine.CodeUnavailable)
	if got := r.instancesOn("other"); !slices.Equal(got, before) {
		t.Errorf("the engine had the instances %v, and now has %v", before, got)
	}
	if _, err := r.store.SetEnd(ctx, running.ID, time.Now().Add(time.Hour), false); err != nil {
		t.Fatal(err)
	}
	r.close()

	r.open(r.withEngine("other", engine.NoBoundary))
	report, err = r.Reconcile(ctx)
	if err != nil || !slices.Contains(report.Adopted, running.ID) || !slices.Equal(report.Finished, []string{stopping.ID}) || len(report.Unserved) != 0 {
		t.Errorf("report with the engine: got %+v, %v", report, err)
	}
	if _, _, err := r.Resume(ctx, alice, paused.ID, 0); err != nil {
		t.Errorf("the paused sandbox does not resume: %v", err)
	}
	if conn, err := r.Dial(ctx, running.ID, 8080); err != nil {
		t.Errorf("the running sandbox cannot be reached: %v", err)
	} else {
		conn.Close()
	}
	if made := r.create(alice, func(c *sandbox.CreateRequest) { c.Template = snap.ID }); made.Engine != "other" {
		t.Errorf("the snapshot was restored on %s", made.Engine)
	}
}

// Neither age, lost data nor a full disk removes a snapshot whose engine is missing.
func TestMissingEngineKeepsSnapshots(t *testing.T) {
	r, ctx := newRigWithTwoEngines(t), t.Context()
	served, other := r.create(alice), r.create(alice, onEngine("other"))
	old := r.snapshot(alice, served.ID, "here")
	kept := r.snapshot(alice, other.ID, "other")
	r.close()

	retire := func(d *lifecycle.Deps) { d.Settings.SnapshotRetention = time.Nanosecond }
	r.open(retire)
	r.images.budget = fault.New(fault.Exhausted, "snapshot_budget", "full")
	prune := func() {
		t.Helper()
		if _, err := r.Prune(ctx, sandbox.Principal{Local: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Reconcile(ctx); err != nil {
		t.Fatal(err)
	}
	prune()
	_, err := r.Snapshot(ctx, alice, served.ID, sandbox.SnapshotRequest{})
	wantKind(t, err, fault.Exhausted, "snapshot_budget")
	_, err = r.FindSnapshot(ctx, alice, old.ID)
	wantKind(t, err, fault.NotFound, "snapshot_not_found")
	if _, err := r.FindSnapshot(ctx, alice, kept.ID); err != nil {
		t.Errorf("the snapshot of the missing engine: %v", err)
	}
	r.wantImages(1)
	r.close()

	r.open()
	if err := r.images.Remove(ctx, kept.ID); err != nil {
		t.Fatal(err)
	}
	r.wantImages(0)
	prune()
	if _, err := r.FindSnapshot(ctx, alice, kept.ID); err != nil {
		t.Errorf("the row of the missing engine's snapshot: %v", err)
	}
	r.close()

	r.open(retire, r.withEngine("other", engine.NoBoundary))
	prune()
	_, err = r.FindSnapshot(ctx, alice, kept.ID)
	wantKind(t, err, fault.NotFound, "snapshot_not_found")
}

// atLeast returns an access whose policy requires a boundary.
func atLeast(b engine.Boundary) sandbox.Access {
	return sandbox.Access{Level: "minimal", Documents: []policy.Document{
		{Policy: "v1", Name: "isolation", Isolation: policy.Isolation{AtLeast: string(b)}},
	}}
}

// A request that names no engine runs on an engine that supports everything it asks for.
func TestLimitsChooseEngine(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.close()
	r.open(func(d *lifecycle.Deps) {
		e, err := fake.New(fake.Options{
			Dir: filepath.Join(r.dir, "run-exact"), Name: "exact", Boundary: engine.OwnKernel, Guest: r.guest,
			Enforces: append(slices.Clone(enforced), engine.LimitInodes),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		d.Engines = fake.Registry(append(d.Engines.All(), e)...)
	})
	inodes := sandbox.Limits{Limits: engine.Limits{DiskInodes: 5000}}
	sb, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Limits: inodes})
	if err != nil || sb.Engine != "exact" {
		t.Errorf("the sandbox is on %q, %v", sb.Engine, err)
	}
	if sb, err = r.Create(ctx, alice, sandbox.CreateRequest{Template: "base"}); err != nil || sb.Engine != "fake" {
		t.Errorf("a sandbox without a limit is on %q, %v", sb.Engine, err)
	}
	_, err = r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Engine: "fake", Limits: inodes})
	if fault.CodeOf(err) != engine.CodeLimit || !strings.Contains(fault.HintOf(err), "--engine exact") {
		t.Errorf("limit that the named engine does not enforce: got error %v (%s)", err, fault.HintOf(err))
	}
}

// requireBoundary makes the policy's requirement for the boundary effective.
func requireBoundary(d *lifecycle.Deps) { d.Settings.AnyBoundary = false }

func TestPolicyChoosesBoundary(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.close()
	r.open(requireBoundary, r.withEngine("machine", engine.OwnKernel), r.withEngine("kernel", engine.UserspaceKernel), r.withEngine("jail", engine.SharedKernel))
	for name, c := range map[string]struct {
		asked  string
		access sandbox.Access
		want   string
		code   string
	}{
		"minimal takes the default":           {"", sandbox.Access{Level: "minimal"}, "fake", ""},
		"light wants a jail":                  {"", sandbox.Access{Level: "light"}, "jail", ""},
		"standard wants a kernel":             {"", sandbox.Access{}, "kernel", ""},
		"strict wants a kernel":               {"", sandbox.Access{Level: "strict"}, "kernel", ""},
		"a document wants a machine":          {"", atLeast(engine.OwnKernel), "machine", ""},
		"named and more than enough":          {"machine", sandbox.Access{Level: "light"}, "machine", ""},
		"named and just enough":               {"jail", sandbox.Access{Level: "light"}, "jail", ""},
		"named and too weak for light":        {"fake", sandbox.Access{Level: "light"}, "", engine.CodeTooWeak},
		"named and too weak for standard":     {"jail", sandbox.Access{}, "", engine.CodeTooWeak},
		"named and too weak for the document": {"kernel", atLeast(engine.OwnKernel), "", engine.CodeTooWeak},
	} {
		sb, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Engine: c.asked, Access: c.access})
		if c.code == "" {
			if err != nil || sb.Engine != c.want {
				t.Errorf("%s: the sandbox is on %q, %v; want %s", name, sb.Engine, err, c.want)
			}
			continue
		}
		if fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), "the engine "+c.asked) || !strings.Contains(fault.HintOf(err), "--engine ") {
			t.Errorf("%s: got error %v (%s), want %s", name, err, fault.HintOf(err), c.code)
		}
	}
}

func TestPolicyChangeKeepsBoundary(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.close()
	r.open(requireBoundary, r.withEngine("jail", engine.SharedKernel))
	sb := r.create(alice, onEngine("jail"), func(c *sandbox.CreateRequest) { c.Access = sandbox.Access{Level: "light"} })
	setAccess := func(a sandbox.Access) error {
		_, err := r.SetAccess(ctx, alice, sb.ID, func(sandbox.Access) (sandbox.Access, error) { return a, nil })
		return err
	}
	if err := setAccess(atLeast(engine.UserspaceKernel)); fault.CodeOf(err) != engine.CodeTooWeak {
		t.Errorf("stronger boundary than the engine has: got error %v", err)
	}
	if err := setAccess(atLeast(engine.SharedKernel)); err != nil {
		t.Errorf("boundary that the engine has: %v", err)
	}
	snap, err := r.Snapshot(ctx, alice, sb.ID, sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	paused := r.create(alice, onEngine("jail"), func(c *sandbox.CreateRequest) { c.Access = sandbox.Access{Level: "light"} })
	if _, err := r.Pause(ctx, alice, paused.ID, false); err != nil {
		t.Fatal(err)
	}
	r.close()

	// The organisation's policy requires a stronger boundary from now on.
	for _, test := range []struct {
		least engine.Boundary
		code  string
	}{{engine.UserspaceKernel, engine.CodeTooWeak}, {engine.SharedKernel, ""}} {
		r.open(requireBoundary, r.withEngine("jail", engine.SharedKernel), func(d *lifecycle.Deps) {
			d.Settings.Organisation = &policy.Document{Policy: "v1", Name: "org", Isolation: policy.Isolation{AtLeast: string(test.least)}}
		})
		if _, err := r.Reconcile(ctx); err != nil {
			t.Fatal(err)
		}
		forks, forkErr := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1})
		if forkErr == nil {
			forkErr = forks[0].Err
		}
		_, rollbackErr := r.Rollback(ctx, alice, sb.ID, snap.ID)
		_, _, resumeErr := r.Resume(ctx, alice, paused.ID, 0)
		for name, err := range map[string]error{"fork": forkErr, "rollback": rollbackErr, "resume": resumeErr} {
			if test.code == "" && err != nil || test.code != "" && fault.CodeOf(err) != test.code {
				t.Errorf("%s under at least %s: %v", name, test.least, err)
			}
		}
		if now, err := r.Get(ctx, alice, sb.ID); err != nil || now.State != sandbox.Running {
			t.Errorf("under at least %s the sandbox is %s, %v", test.least, now.State, err)
		}
		r.close()
	}
}

func TestWarmSandboxMatchesEngine(t *testing.T) {
	p := newPoolRig(t)
	p.close()
	p.open(p.withClaims, p.withEngine("other", engine.NoBoundary))
	p.start(opened)
	warm := p.rows()[0]
	req := opened
	req.Engine = "other"
	sb, err := p.Create(t.Context(), alice, req)
	if err != nil || sb.ID == warm.ID || sb.Engine != "other" {
		t.Fatalf("%s on %s, %v; the warm sandbox is %s on %s", sb.ID, sb.Engine, err, warm.ID, warm.Engine)
	}
	req.Engine = ""
	if sb, err = p.Create(t.Context(), alice, req); err != nil || sb.ID != warm.ID || sb.Engine != "fake" {
		t.Errorf("%s on %s, %v; the warm sandbox is %s", sb.ID, sb.Engine, err, warm.ID)
	}
}
