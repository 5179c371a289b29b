package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/lockfile"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// lockGateway remembers the set of lockfiles of each attachment. As in the real gateway, an update
// does not change it.
type lockGateway struct {
	fakeGateway
	sets map[string]*lockfile.Set
}

func (g *lockGateway) Attach(ctx context.Context, a sandbox.Attachment) (sandbox.Link, error) {
	g.mu.Lock()
	g.sets[a.Sandbox] = a.Locked
	g.mu.Unlock()
	return g.fakeGateway.Attach(ctx, a)
}

// names returns the packages that a sandbox may install, or "none" without a set.
func (g *lockGateway) names(id string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sets[id]
	if s == nil {
		return "none"
	}
	var out []string
	for _, e := range s.Entries {
		out = append(out, e.Name)
	}
	return strings.Join(out, " ")
}

const lockSum = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="

// lockedAccess returns an access whose policy requires lockfiles.
func lockedAccess(t *testing.T, settings string) sandbox.Access {
	t.Helper()
	d, err := policy.Parse([]byte("policy: v1\nnetwork: {hosts: [{host: proxy.golang.org, rules: [{do: allow}]}]}\npackages: {" + settings + "}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Access{Documents: []policy.Document{d}}
}

// Attack: a program in a sandbox edits a lockfile of its workspace, and has the sandbox continue in
// another instance.
func TestSandboxKeepsLockfilesOfItsCreation(t *testing.T) {
	gateway := &lockGateway{fakeGateway: fakeGateway{attached: map[string]sandbox.Attachment{}}, sets: map[string]*lockfile.Set{}}
	withGateway := func(d *lifecycle.Deps) { d.Gateway = gateway }
	r := newRig(t, withGateway)
	ctx, workspace := t.Context(), t.TempDir()
	lock := func(modules ...string) {
		t.Helper()
		var text strings.Builder
		for _, m := range modules {
			fmt.Fprintf(&text, "%s v1.0.0 %s\n", m, lockSum)
		}
		if err := os.WriteFile(filepath.Join(workspace, "go.sum"), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, id, names string) {
		t.Helper()
		if got := gateway.names(id); got != names {
			t.Errorf("%s: the gateway has the set %q, want %q", when, got, names)
		}
	}
	lock("first")
	only := lockedAccess(t, "cache: [go], lockfile_only: true")
	request := func(c *sandbox.CreateRequest) { c.Workspace, c.Access = workspace, only }
	sb := r.create(local, request)
	want("creation", sb.ID, "first")

	lock("evil", "first")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n := r.snapshot(local, sb.ID, "")
	_, err := r.Rollback(ctx, local, sb.ID, n.ID)
	must(err)
	want("rollback", sb.ID, "first")
	_, err = r.Reset(ctx, local, sb.ID)
	must(err)
	want("reset", sb.ID, "first")
	_, err = r.Pause(ctx, local, sb.ID, false)
	must(err)
	_, _, err = r.Resume(ctx, local, sb.ID, 0)
	must(err)
	want("resumption", sb.ID, "first")
	forks, err := r.Fork(ctx, local, sb.ID, sandbox.ForkRequest{Count: 1})
	must(err)
	must(forks[0].Err)
	want("copy", forks[0].Sandbox.ID, "first")
	started, err := r.Create(ctx, local, sandbox.CreateRequest{Template: n.ID, Access: only})
	must(err)
	want("start from a snapshot", started.ID, "first")
	_, err = r.SetAccess(ctx, local, sb.ID, replaceWith(lockedAccess(t, "cache: [go], min_age: 24h, lockfile_only: true")))
	must(err)
	want("update of the policy", sb.ID, "first")
	must(r.Remove(ctx, local, forks[0].Sandbox.ID))

	// Another server takes over, and its instances have the stored set.
	_, err = r.Pause(ctx, local, sb.ID, false)
	must(err)
	r.close()
	r.open(withGateway)
	_, _, err = r.Resume(ctx, local, sb.ID, 0)
	must(err)
	want("resumption by another server", sb.ID, "first")

	// Control: a new sandbox has the lockfiles of its own creation.
	other := r.create(local, request)
	want("another creation", other.ID, "evil first")
}

func TestLockfilesAreReadOnlyForPoliciesThatRequireThem(t *testing.T) {
	gateway := &lockGateway{fakeGateway: fakeGateway{attached: map[string]sandbox.Attachment{}}, sets: map[string]*lockfile.Set{}}
	r := newRig(t, func(d *lifecycle.Deps) { d.Gateway = gateway })
	ctx, workspace := t.Context(), t.TempDir()
	only, without := lockedAccess(t, "cache: [go], lockfile_only: true"), lockedAccess(t, "cache: [go]")

	empty := r.create(local, func(c *sandbox.CreateRequest) { c.Workspace, c.Access = workspace, only })
	if gateway.names(empty.ID) != "" || !slices.ContainsFunc(empty.Notes, func(s string) bool { return strings.Contains(s, "no lockfile") }) {
		t.Errorf("a workspace without lockfiles: got the set %q and the notes %q, want an empty set and a note", gateway.names(empty.ID), empty.Notes)
	}
	remote := r.create(alice, func(c *sandbox.CreateRequest) { c.Access = only })
	if s := gateway.sets[remote.ID]; s == nil || !s.NoWorkspace {
		t.Errorf("a sandbox without a workspace: got %+v, want an empty set with that reason", s)
	}
	free := r.create(local, func(c *sandbox.CreateRequest) { c.Workspace, c.Access = workspace, without })
	if got := gateway.names(free.ID); got != "none" {
		t.Errorf("without lockfile_only: got the set %q, want none", got)
	}
	// The setting that comes later finds no set, so every package is refused.
	if _, err := r.SetAccess(ctx, local, free.ID, replaceWith(only)); err != nil {
		t.Fatal(err)
	}
	if got := gateway.names(free.ID); got != "none" {
		t.Errorf("lockfile_only that comes later: got the set %q, want none", got)
	}

	var many strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&many, "example.com/a-module-with-a-long-name/%d v1.0.0 %s\n", i, lockSum)
	}
	if err := os.WriteFile(filepath.Join(workspace, "go.sum"), []byte(many.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := r.Create(ctx, local, sandbox.CreateRequest{Template: "base", Workspace: workspace, Access: only})
	if fault.CodeOf(err) != lockfile.CodeTooLarge {
		t.Errorf("too many packages: got %v, want %s", err, lockfile.CodeTooLarge)
	}
	if _, err := r.Create(ctx, local, sandbox.CreateRequest{Template: "base", Workspace: workspace, Access: without}); err != nil {
		t.Errorf("the same workspace without lockfile_only: %v", err)
	}
}
