package lifecycle_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/state/workspace"
)

// The changes of a run can be applied or discarded after its sandbox has ended.
func TestRetainedChangesOutliveSandbox(t *testing.T) {
	y := newWorkspaceRig(t, level("standard"))
	y.remove("gone.txt")
	k, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID)
	if err != nil || k.Files != 4 || k.Added != 2 || k.Removed != 1 || k.Workspace != y.host {
		t.Fatalf("KeepChanges: got %+v, %v", k, err)
	}
	if err := y.Forget(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(y.inside); err != nil {
		t.Fatal(err)
	}
	list, err := y.Changes().ListChanges(t.Context(), local)
	if err != nil || len(list) != 1 || list[0].ID != y.sb.ID {
		t.Fatalf("ListChanges: got %+v, %v; want one", list, err)
	}
	want := []string{"changed a.txt", "removed gone.txt", "created new", "created new/b.txt"}
	if got := y.changes(); !slices.Equal(got, want) {
		t.Fatalf("retained changes: got %q, want %q", got, want)
	}
	_, err = y.Changes().Changes(t.Context(), bob, y.sb.ID, sandbox.ChangesRequest{})
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
	_, err = y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Dir: "/tmp"})
	wantKind(t, err, fault.Conflict, "changes_kept")
	// A file that was also changed on the host is in conflict, and needs an approval too.
	write(t, y.host, "a.txt", "mine\n")
	_, err = y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	wantKind(t, err, fault.Denied, "export_pending")
	y.approvals.granted = true
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	if err != nil || y.hostFile("a.txt") != "mine\n" || y.hostFile("new/b.txt") != "new\n" || y.hostFile("gone.txt") != "-" {
		t.Fatalf("apply: got %+v, %v", done, err)
	}
	if len(done.Skipped) != 1 || done.Skipped[0].Conflict != changeset.ChangedOutside {
		t.Errorf("skipped changes: got %+v, want one that was changed outside", done.Skipped)
	}
	if got := y.changes(); !slices.Equal(got, []string{"changed a.txt"}) {
		t.Errorf("changes after the apply: got %q, want only a.txt", got)
	}
	if _, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{Overwrite: true}); err != nil || y.hostFile("a.txt") != "one\ntwo\n" {
		t.Fatal(err)
	}
	// Everything was applied, so nothing is left of it.
	_, err = y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{})
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
	wantKind(t, y.Changes().DiscardChanges(t.Context(), local, y.sb.ID), fault.NotFound, "changes_not_found")
}

// An ended sandbox with retained changes is found by its name and ID.
func TestRetainedChangesByReference(t *testing.T) {
	y := newWorkspaceRig(t, level("standard"))
	if _, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := y.Remove(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{y.sb.ID, y.sb.ID[:12]} {
		set, err := y.Changes().Changes(t.Context(), local, ref, sandbox.ChangesRequest{})
		if err != nil || set.Sandbox != y.sb.ID || set.Files == 0 {
			t.Errorf("comparison of %q: got %+v, %v", ref, set, err)
		}
	}
}

// Under strict, everything needs an approval, and files are compared with the copy that the sandbox
// got. Retained changes need that copy, which is removed with them.
func TestStrictChanges(t *testing.T) {
	y := newWorkspaceRig(t, level("strict"))
	write(t, y.host, "same.txt", "mine\n")
	write(t, y.inside, "same.txt", "theirs\n")
	if _, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := y.Forget(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(y.inside); err != nil {
		t.Fatal(err)
	}
	if err := incompleteError(y.Reconcile(t.Context())); err != nil {
		t.Fatal(err)
	}
	if got := y.changes(); !slices.Equal(got, []string{"changed a.txt", "created new", "created new/b.txt", "changed same.txt"}) {
		t.Fatalf("retained changes: got %q", got)
	}
	_, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	wantKind(t, err, fault.Denied, "export_pending")
	if hint := fault.HintOf(err); !strings.Contains(hint, "crannog console --name") || !strings.HasSuffix(hint, "; then repeat the command") {
		t.Errorf("the hint does not name the second approver: %q", hint)
	}
	if q := y.approvals.asked[0]; q.Kind != egress.AskExport || q.Rule != policy.RuleExport || q.Quorum != 2 || y.hostFile("a.txt") != "one\n" {
		t.Errorf("approval request: got %+v", q)
	}
	y.approvals.granted = true
	done, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	if err != nil || y.hostFile("a.txt") != "one\ntwo\n" || y.hostFile("same.txt") != "mine\n" || len(done.Skipped) != 1 || done.Skipped[0].Conflict == "" {
		t.Fatalf("apply with a grant: got %+v, %v", done, err)
	}
	if err := y.Changes().DiscardChanges(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"workspaces", "manifests", "changes", "applies"} {
		entries, err := os.ReadDir(filepath.Join(y.state, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) != 0 {
			t.Errorf("files remain in %s: %v %v", dir, entries, err)
		}
	}
}

// Retained changes need the copy of the workspace that their sandbox had, even if it was made for
// another sandbox, and whatever other user of the copy is removed. The copy is removed with its
// last user.
func TestRetainedChangesKeepWorkspaceCopy(t *testing.T) {
	y := newWorkspaceRig(t, level("strict"))
	ctx := t.Context()
	n := y.snapshot(local, y.sb.ID, "")
	second, err := y.Create(ctx, local, sandbox.CreateRequest{Template: n.ID, Access: level("strict")})
	if err != nil {
		t.Fatal(err)
	}
	forget := func(id string) func() error { return func() error { return y.Forget(ctx, local, id) } }
	discard := func(id string) func() error {
		return func() error { return y.Changes().DiscardChanges(ctx, local, id) }
	}
	reconcile := func() error { _, err := y.Reconcile(ctx); return err }
	for _, id := range []string{y.sb.ID, second.ID} {
		if k, err := y.Changes().KeepChanges(ctx, local, id); err != nil || k.Files == 0 {
			t.Fatal(k, err)
		}
	}
	for _, step := range []struct {
		what     string
		do       func() error
		retained []string // IDs with retained changes
		without  bool     // the copy
	}{
		{"end of the first", forget(y.sb.ID), []string{y.sb.ID, second.ID}, false},
		{"end of the second", forget(second.ID), []string{y.sb.ID, second.ID}, false},
		{"removal of the snapshot", func() error { return y.RemoveSnapshot(ctx, local, n.ID) }, []string{y.sb.ID, second.ID}, false},
		{"discarding those of the first", discard(y.sb.ID), []string{second.ID}, false},
		{"a new start", reconcile, []string{second.ID}, false},
		{"discarding those of the second", discard(second.ID), nil, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		for _, id := range step.retained {
			if set, err := y.Changes().Changes(ctx, local, id, sandbox.ChangesRequest{}); err != nil || set.Files == 0 {
				t.Errorf("after the %s: %d files of %s, %v", step.what, set.Files, id, err)
			}
		}
		copies, err := os.ReadDir(filepath.Join(y.state, "workspaces"))
		if err != nil || (len(copies) == 0) != step.without {
			t.Errorf("after the %s: %d copies, %v", step.what, len(copies), err)
		}
	}
}

// Removing a snapshot removes the copy if nothing else needs it, and not a copy that retained
// changes need.
func TestRemovedSnapshotKeepsNeededCopy(t *testing.T) {
	for _, kept := range []bool{true, false} {
		y := newWorkspaceRig(t, level("strict"))
		n := y.snapshot(local, y.sb.ID, "")
		if kept {
			if _, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil {
				t.Fatal(err)
			}
		}
		if err := y.Forget(t.Context(), local, y.sb.ID); err != nil {
			t.Fatal(err)
		}
		if err := y.RemoveSnapshot(t.Context(), local, n.ID); err != nil {
			t.Fatal(err)
		}
		copies, err := os.ReadDir(filepath.Join(y.state, "workspaces"))
		if err != nil || (len(copies) == 1) != kept {
			t.Errorf("kept %v: %d copies, %v", kept, len(copies), err)
		}
		if kept {
			y.approvals.granted = true
			if _, err := y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{}); err != nil || y.hostFile("a.txt") != "one\ntwo\n" {
				t.Errorf("a.txt after the apply: got %q, %v", y.hostFile("a.txt"), err)
			}
		}
	}
}

// Retained changes expire when no decision is made in time, together with everything that they
// needed.
func TestRetainedChangesExpire(t *testing.T) {
	y := newWorkspaceRig(t, level("strict"))
	if _, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := y.Forget(t.Context(), local, y.sb.ID); err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(y.state, "changes", y.sb.ID, "meta.json")
	text, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	m["expires_at"] = "2020-01-01T00:00:00Z"
	if text, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(meta, text, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Dir(meta), old, old); err != nil {
		t.Fatal(err)
	}
	_, err = y.Changes().Apply(t.Context(), local, y.sb.ID, sandbox.ApplyRequest{})
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
	if err := incompleteError(y.Reconcile(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"workspaces", "manifests", "changes"} {
		entries, err := os.ReadDir(filepath.Join(y.state, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) != 0 {
			t.Errorf("files remain in %s: %v %v", dir, entries, err)
		}
	}
}

func TestUnchangedWorkspaceRetainsNothing(t *testing.T) {
	y := newWorkspaceRig(t, level("standard"))
	write(t, y.inside, "a.txt", "one\n")
	if err := os.RemoveAll(filepath.Join(y.inside, "new")); err != nil {
		t.Fatal(err)
	}
	if k, err := y.Changes().KeepChanges(t.Context(), local, y.sb.ID); err != nil || k.Files != 0 {
		t.Fatalf("KeepChanges of an unchanged workspace: got %+v, %v", k, err)
	}
	if list, err := y.Changes().ListChanges(t.Context(), local); err != nil || len(list) != 0 {
		t.Errorf("ListChanges: got %+v, %v; want none", list, err)
	}
}

// The manifest of a workspace is removed with its sandbox, also by a creation that fails.
func TestManifestsAreRemovedWithSandboxes(t *testing.T) {
	state := t.TempDir()
	y := newRig(t, func(d *lifecycle.Deps) { d.Manifests = workspace.NewManifests(state) })
	host := t.TempDir()
	wantManifests := func(want int) {
		t.Helper()
		if entries, err := os.ReadDir(state); err != nil || len(entries) != want {
			t.Errorf("%d manifests, want %d, %v", len(entries), want, err)
		}
	}
	sb := y.create(local, func(c *sandbox.CreateRequest) { c.Workspace = host })
	wantManifests(1)
	forks, err := y.Fork(t.Context(), local, sb.ID, sandbox.ForkRequest{Count: 2})
	if err != nil || forks[0].Err != nil || forks[1].Err != nil {
		t.Fatalf("fork: got %+v, %v", forks, err)
	}
	wantManifests(3)
	for _, id := range []string{sb.ID, forks[0].Sandbox.ID, forks[1].Sandbox.ID} {
		if err := y.Forget(t.Context(), local, id); err != nil {
			t.Fatal(err)
		}
	}
	wantManifests(0)
	y.setFault(func(step fake.Step, _ string) error {
		if strings.HasPrefix(string(step), "create") {
			return errors.New("no")
		}
		return nil
	})
	if _, err := y.Create(t.Context(), local, sandbox.CreateRequest{Template: "base", Workspace: host}); err == nil {
		t.Fatal("the sandbox was created")
	}
	wantManifests(0)
}
