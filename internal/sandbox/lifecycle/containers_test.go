package lifecycle_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// withContainerEngine adds the engine kernel, in whose sandboxes containers can run.
func (r *rig) withContainerEngine() option {
	return func(d *lifecycle.Deps) {
		e, err := fake.New(fake.Options{
			Dir: filepath.Join(r.dir, "run-kernel"), Name: "kernel", Boundary: engine.UserspaceKernel, Guest: r.guest, Enforces: enforced, Containers: true,
		})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(e.Close)
		d.Engines = fake.Registry(append(d.Engines.All(), e)...)
	}
}

// containersSetting returns an access with a setting for containers in a document of the sandbox.
func containersSetting(do string) sandbox.Access {
	return sandbox.Access{Documents: []policy.Document{{Policy: "v1", Name: "containers", Isolation: policy.Isolation{Containers: do}}}}
}

// withOrganisation sets the organisation's setting for containers.
func withOrganisation(do string) option {
	return func(d *lifecycle.Deps) {
		d.Settings.Organisation = &policy.Document{Policy: "v1", Name: "org", Isolation: policy.Isolation{Containers: do}}
	}
}

// TestContainersAreOffUnlessAsked checks who gets containers inside: a sandbox whose request asks for
// them, under a policy of which no layer denies them, and on an engine that can run them.
func TestContainersAreOffUnlessAsked(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	for name, c := range map[string]struct {
		org    string
		asks   bool
		engine string
		access sandbox.Access
		on     bool
		code   string
	}{
		"not asked":                          {"", false, "", sandbox.Access{}, false, ""},
		"not asked, and all allow":           {"allow", false, "", containersSetting("allow"), false, ""},
		"asked":                              {"", true, "", sandbox.Access{}, true, ""},
		"asked for the engine by name":       {"", true, "kernel", sandbox.Access{}, true, ""},
		"asked for another engine":           {"", true, "jail", sandbox.Access{Level: "light"}, false, engine.CodeContainers},
		"strict":                             {"", true, "", sandbox.Access{Level: "strict"}, false, "policy_denies_containers"},
		"the document denies":                {"", true, "", containersSetting("deny"), false, "policy_denies_containers"},
		"the organisation denies":            {"deny", true, "", sandbox.Access{}, false, "policy_denies_containers"},
		"a task cannot allow what it denies": {"deny", true, "", containersSetting("allow"), false, "policy_denies_containers"},
	} {
		r.close()
		options := []option{requireBoundary, r.withEngine("jail", engine.SharedKernel), r.withContainerEngine()}
		if c.org != "" {
			options = append(options, withOrganisation(c.org))
		}
		r.open(options...)
		sb, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Engine: c.engine, Access: c.access, Containers: c.asks})
		if fault.CodeOf(err) != c.code || err != nil && fault.HintOf(err) == "" || sb.Containers != c.on {
			t.Errorf("%s: containers %t, got %v (%s); want %t and the code %q", name, sb.Containers, err, fault.HintOf(err), c.on, c.code)
		}
		if err != nil {
			continue
		}
		if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.Containers != c.on {
			t.Errorf("%s: Get shows containers %t, %v", name, got.Containers, err)
		}
		started := r.record.Entries(audit.SandboxStarted)
		var entry payload.Started
		if err := json.Unmarshal(started[len(started)-1].Data, &entry); err != nil || entry.Containers != c.on {
			t.Errorf("%s: the audit log has containers %t, %v", name, entry.Containers, err)
		}
	}
}

// TestContainersFollowPolicy checks that a running sandbox with containers gets no policy that denies
// them, and that neither a copy nor a later instance starts after the organisation denies them.
func TestContainersFollowPolicy(t *testing.T) {
	r, ctx := newRig(t), t.Context()
	r.close()
	r.open(requireBoundary, r.withContainerEngine())
	asked := func(c *sandbox.CreateRequest) { c.Containers = true }
	sb, paused, plain := r.create(alice, asked), r.create(alice, asked), r.create(alice)
	setAccess := func(id, do string) error {
		_, err := r.SetAccess(ctx, alice, id, func(sandbox.Access) (sandbox.Access, error) { return containersSetting(do), nil })
		return err
	}
	if err := setAccess(sb.ID, "deny"); fault.CodeOf(err) != "policy_denies_containers" {
		t.Errorf("a policy that denies what the sandbox has: got %v", err)
	}
	if err := setAccess(plain.ID, "deny"); err != nil {
		t.Errorf("a policy that denies what the sandbox does not have: %v", err)
	}
	if err := setAccess(sb.ID, "allow"); err != nil {
		t.Errorf("a policy that allows containers: %v", err)
	}
	snap, err := r.Snapshot(ctx, alice, sb.ID, sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	without, err := r.Snapshot(ctx, alice, plain.ID, sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pause(ctx, alice, paused.ID, false); err != nil {
		t.Fatal(err)
	}
	from := func(id string, containers bool) (sandbox.Sandbox, error) {
		return r.Create(ctx, alice, sandbox.CreateRequest{Template: id, Containers: containers})
	}
	if got, err := from(snap.ID, false); err != nil || !got.Containers {
		t.Errorf("from a snapshot with containers: %t, %v", got.Containers, err)
	}
	if _, err := from(without.ID, true); fault.CodeOf(err) != "snapshot_containers" {
		t.Errorf("containers for memory that was saved without: %v", err)
	}
	forks, err := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1})
	if err != nil || forks[0].Err != nil || !forks[0].Sandbox.Containers {
		t.Errorf("a copy: %+v, %v", forks, err)
	}
	r.close()
	for do, code := range map[string]string{"deny": "policy_denies_containers", "allow": ""} {
		r.open(requireBoundary, r.withContainerEngine(), withOrganisation(do))
		if _, err := r.Reconcile(ctx); err != nil {
			t.Fatal(err)
		}
		forks, forkErr := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1})
		if forkErr == nil {
			forkErr = forks[0].Err
		}
		_, createErr := from(snap.ID, false)
		_, rollbackErr := r.Rollback(ctx, alice, sb.ID, snap.ID)
		errs := map[string]error{"fork": forkErr, "create from the snapshot": createErr, "rollback": rollbackErr}
		if do == "deny" {
			_, _, errs["resume"] = r.Resume(ctx, alice, paused.ID, 0)
		}
		for name, err := range errs {
			if fault.CodeOf(err) != code {
				t.Errorf("%s when the organisation says %s: got %v, want the code %q", name, do, err, code)
			}
		}
		r.close()
	}
}
