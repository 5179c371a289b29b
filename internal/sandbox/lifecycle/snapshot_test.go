package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

func (r *rig) snapshot(caller sandbox.Principal, id, name string) sandbox.Snapshot {
	r.t.Helper()
	n, err := r.Snapshot(r.t.Context(), caller, id, sandbox.SnapshotRequest{Name: name})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// from returns an option that starts a sandbox from a template or snapshot.
func from(ref string) func(*sandbox.CreateRequest) {
	return func(c *sandbox.CreateRequest) { c.Template = ref }
}

func TestSnapshotsFormTree(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb := r.create(alice)
	gone := r.Gone(sb.ID)
	r.state(sb.ID).Remember("x", "1")
	first := r.snapshot(alice, sb.ID, "base-ready")
	r.state(sb.ID).Remember("x", "2")
	second := r.snapshot(alice, sb.ID, "Later ")
	if first.Parent != "" || second.Parent != first.ID || second.Name != "later" || first.Sandbox != sb.ID || first.Owner != alice.KeyID || first.Bytes == 0 {
		t.Errorf("snapshots: got %+v and %+v", first, second)
	}
	select {
	case <-gone:
		t.Error("streams were cut")
	default:
	}
	if got, _ := r.Get(ctx, alice, sb.ID); got.At != second.ID || got.State != sandbox.Running {
		t.Errorf("the sandbox is at %q", got.At)
	}
	child := r.create(alice, from("base-ready"))
	if child.Origin != first.ID || child.At != first.ID || child.Template != "base" || child.TemplateID != templateID || r.state(child.ID).Memory("x") != "1" {
		t.Errorf("sandbox from the snapshot: %+v, %q", child, r.state(child.ID).Memory("x"))
	}
	if c := r.booted(); c.Renew != guest.Copied || c.SandboxID != child.ID || c.AccessToken != child.AccessToken || child.AccessToken == sb.AccessToken {
		t.Errorf("its guest was given %+v", c)
	}
	third := r.snapshot(alice, child.ID, "base-ready") // it takes over the name
	if third.Parent != first.ID {
		t.Errorf("parent of the third snapshot: got %q, want the first", third.Parent)
	}
	if n, err := r.FindSnapshot(ctx, alice, "base-ready"); err != nil || n.ID != third.ID || n.OwnBytes == 0 {
		t.Errorf("found %+v, %v", n, err)
	}
	if n, err := r.FindSnapshot(ctx, alice, first.ID); err != nil || n.Name != "" {
		t.Errorf("the older one is named %q, %v", n.Name, err)
	}
	page, err := r.Snapshots(ctx, alice, sandbox.SnapshotFilter{Limit: 2})
	if err != nil || len(page.Snapshots) != 2 || !page.More || page.Snapshots[0].ID != third.ID {
		t.Fatalf("first page %+v, %v", page, err)
	}
	last := page.Snapshots[1]
	page, err = r.Snapshots(ctx, alice, sandbox.SnapshotFilter{Limit: 2, AfterTime: last.CreatedAt, AfterID: last.ID})
	if err != nil || len(page.Snapshots) != 1 || page.More || page.Snapshots[0].ID != first.ID {
		t.Errorf("second page %+v, %v", page, err)
	}
	// What came from a removed snapshot stays, and comes from its parent then.
	if err := r.RemoveSnapshot(ctx, alice, first.ID); err != nil {
		t.Fatal(err)
	}
	if n, err := r.FindSnapshot(ctx, alice, second.ID); err != nil || n.Parent != "" {
		t.Errorf("parent of the second snapshot: got %q, %v; want none", n.Parent, err)
	}
	if r.body(child.ID) != child.ID {
		t.Error("a sandbox from a removed snapshot was removed too")
	}
	r.wantImages(2)
}

// P2: no caller learns of another key's snapshots, by any request that takes a
// snapshot.
func TestSnapshotsAreHiddenFromOtherKeys(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb, bobSandbox := r.create(alice), r.create(bob)
	n := r.snapshot(alice, sb.ID, "hers")
	for _, ref := range []string{n.ID, "hers", "no-such"} {
		_, err := r.FindSnapshot(ctx, bob, ref)
		wantKind(t, err, fault.NotFound, "snapshot_not_found")
		wantKind(t, r.RemoveSnapshot(ctx, bob, ref), fault.NotFound, "snapshot_not_found")
		_, err = r.Rollback(ctx, bob, bobSandbox.ID, ref)
		wantKind(t, err, fault.NotFound, "snapshot_not_found")
		_, err = r.Create(ctx, bob, sandbox.CreateRequest{Template: ref})
		wantKind(t, err, fault.NotFound, "template_not_found")
	}
	if page, err := r.Snapshots(ctx, bob, sandbox.SnapshotFilter{}); err != nil || len(page.Snapshots) != 0 {
		t.Errorf("bob lists %+v, %v", page, err)
	}
	if page, err := r.Snapshots(ctx, local, sandbox.SnapshotFilter{}); err != nil || len(page.Snapshots) != 1 {
		t.Errorf("a local caller lists %+v, %v", page, err)
	}
	if _, err := r.FindSnapshot(ctx, local, "hers"); err != nil {
		t.Error(err)
	}
	if theirs := r.snapshot(local, sb.ID, ""); theirs.Owner != alice.KeyID {
		t.Errorf("what a local caller takes of hers belongs to %q", theirs.Owner)
	}
	r.create(alice, from(n.ID)) // the control
}

func TestSnapshotNames(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	for _, name := range []string{"a/b", "a:b", "ä", "aaaaaaaaaaaaaaaaaaaa", "a b"} {
		_, err := r.Snapshot(t.Context(), alice, sb.ID, sandbox.SnapshotRequest{Name: name})
		wantKind(t, err, fault.Invalid, "snapshot_name_invalid")
	}
	// A sandbox would be made from the template, and a removal would remove the snapshot.
	_, err := r.Snapshot(t.Context(), alice, sb.ID, sandbox.SnapshotRequest{Name: "base"})
	wantKind(t, err, fault.Exists, "snapshot_name_taken")
	r.snapshot(alice, sb.ID, "base-2")
	r.wantImages(1)
}

func TestFailedSnapshotLeavesNothing(t *testing.T) {
	broken := errors.New("broken on purpose")
	for name, fail := range map[string]func(*rig){
		"begin":  func(r *rig) { r.images.budget = broken },
		"save":   func(r *rig) { r.failAt(fake.CheckpointBegin, broken) },
		"saved":  func(r *rig) { r.failAt(fake.CheckpointSaved, broken) },
		"commit": func(r *rig) { r.images.commit = broken },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sb := r.create(alice)
			fail(r)
			if _, err := r.Snapshot(t.Context(), alice, sb.ID, sandbox.SnapshotRequest{Name: "n"}); !errors.Is(err, broken) {
				t.Errorf("got error %v, want the injected one", err)
			}
			page, err := r.Snapshots(t.Context(), local, sandbox.SnapshotFilter{})
			if got, _ := r.Get(t.Context(), alice, sb.ID); err != nil || len(page.Snapshots) != 0 || got.At != "" || r.body(sb.ID) != sb.ID {
				t.Errorf("snapshots remain: %+v, %v; the sandbox is at %q", page, err, got.At)
			}
			r.wantImages(0)
		})
	}
}

func TestSnapshotOfFilesOnly(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb := r.create(alice)
	r.state(sb.ID).Remember("x", "1")
	r.state(sb.ID).Write("f", "one")
	n, err := r.Snapshot(ctx, alice, sb.ID, sandbox.SnapshotRequest{FilesOnly: true})
	if err != nil || !n.FilesOnly || n.Format != "" {
		t.Fatalf("snapshot of files only: got %+v, %v", n, err)
	}
	// It works with any format and any limits.
	r.close()
	r.format = "fake/2"
	r.open()
	made := r.create(alice, from(n.ID), func(c *sandbox.CreateRequest) { c.Limits.PIDs = 77 })
	if s := r.state(made.ID); s.Memory("x") != "" || s.File("f") != "one" || made.Limits.PIDs != 77 {
		t.Errorf("memory %q, file %q", s.Memory("x"), s.File("f"))
	}
	if c := r.booted(); !c.Archive || c.Renew != guest.Copied {
		t.Errorf("the guest was given %+v", c)
	}
}

// Saved memory is restored only with the same format, programs and fixed limits.
func TestMemoryNeedsSameInstance(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	var revision atomic.Value
	revision.Store("1")
	r.close()
	r.open(func(d *lifecycle.Deps) { d.Templates = changingTemplates{&revision} })
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Limits.PIDs, c.Limits.MemoryBytes = 99, 256<<20 })
	n := r.snapshot(alice, sb.ID, "n")
	paused := r.create(alice)
	if _, err := r.Pause(ctx, alice, paused.ID, false); err != nil {
		t.Fatal(err)
	}
	create := func(l engine.Limits) (sandbox.Sandbox, error) {
		return r.Create(ctx, alice, sandbox.CreateRequest{Template: n.ID, Limits: sandbox.Limits{Limits: l}})
	}
	_, err := create(engine.Limits{PIDs: 98})
	wantKind(t, err, fault.Invalid, "snapshot_limits")
	if made, err := create(engine.Limits{PIDs: 99, MemoryBytes: 512 << 20, MilliCPU: 500}); err != nil || made.Limits.MemoryBytes != 512<<20 || made.Limits.PIDs != 99 {
		t.Errorf("limits with requested ones: got %+v, %v", made.Limits, err)
	}
	if made, err := create(engine.Limits{}); err != nil || made.Limits.MemoryBytes != 256<<20 || made.Limits.PIDs != 99 {
		t.Errorf("limits of the snapshot: got %+v, %v", made.Limits, err)
	}
	for code, change := range map[string]func(*lifecycle.Deps){
		"snapshot_format":           func(*lifecycle.Deps) {},
		"snapshot_programs_changed": func(*lifecycle.Deps) { revision.Store("2") },
	} {
		r.close()
		if r.format = ""; code == "snapshot_format" {
			r.format = "fake/2"
		}
		r.open(func(d *lifecycle.Deps) { d.Templates = changingTemplates{&revision}; change(d) })
		_, err := create(engine.Limits{})
		wantKind(t, err, fault.Conflict, code)
		_, _, err = r.Resume(ctx, alice, paused.ID, 0)
		wantKind(t, err, fault.Conflict, code)
		if code == "snapshot_programs_changed" {
			// What could not be restored is not saved either, while it runs.
			_, err = r.Pause(ctx, alice, sb.ID, false)
			wantKind(t, err, fault.Conflict, code)
			_, err = r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1})
			wantKind(t, err, fault.Conflict, code)
			if _, err := r.Snapshot(ctx, alice, sb.ID, sandbox.SnapshotRequest{FilesOnly: true}); err != nil {
				t.Errorf("snapshot of files only: %v", err)
			}
		}
		if _, ok := r.Live(sb.ID); ok {
			_, err = r.Rollback(ctx, alice, sb.ID, n.ID)
			wantKind(t, err, fault.Conflict, code)
		}
		if fault.HintOf(err) == "" {
			t.Errorf("%s: no hint", code)
		}
		revision.Store("1")
	}
	r.close()
	r.format = ""
	r.open(func(d *lifecycle.Deps) { d.Templates = changingTemplates{&revision} })
	if _, err := create(engine.Limits{}); err != nil {
		t.Errorf("creation with the same format and programs: %v", err)
	}
}

// Snapshots and paused sandboxes outlive the process. Unreferenced images are
// removed, and a sandbox that has lost its data is reported as lost.
func TestSavedStatesSurviveRestart(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb, lost := r.create(alice), r.create(alice)
	r.state(sb.ID).Remember("x", "1")
	n, withoutImage := r.snapshot(alice, sb.ID, "n"), r.snapshot(alice, sb.ID, "bare")
	for _, id := range []string{sb.ID, lost.ID} {
		if _, err := r.Pause(ctx, alice, id, false); err != nil {
			t.Fatal(err)
		}
	}
	row, err := r.store.Get(ctx, lost.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	statesDir := filepath.Join(r.dir, "states")
	if err := errors.Join(os.Mkdir(filepath.Join(statesDir, "images", "orphan"), 0o700), os.Mkdir(filepath.Join(statesDir, "drafts", "half"), 0o700),
		os.RemoveAll(filepath.Join(statesDir, "images", row.Saved.Image)), os.RemoveAll(filepath.Join(statesDir, "images", withoutImage.ID))); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.reconcile()
	pruned, err := r.Prune(ctx, local)
	if err != nil || len(pruned.Sandboxes) != 1 || pruned.Sandboxes[0].ID != lost.ID || pruned.Sandboxes[0].Reason != sandbox.ReasonLost {
		t.Errorf("without their images: %+v, %v", pruned, err)
	}
	r.wantImages(2)
	_, err = r.FindSnapshot(ctx, alice, withoutImage.ID)
	wantKind(t, err, fault.NotFound, "snapshot_not_found")
	if _, _, err := r.Resume(ctx, alice, sb.ID, 0); err != nil || r.state(sb.ID).Memory("x") != "1" {
		t.Errorf("resumed: %v", err)
	}
	if made := r.create(alice, from(n.ID)); r.state(made.ID).Memory("x") != "1" {
		t.Error("sandbox from the snapshot: its memory is gone")
	}
}

func TestOldSnapshotsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(d *lifecycle.Deps) { d.Settings.SnapshotRetention = time.Hour })
		sb := r.create(local, func(c *sandbox.CreateRequest) { c.Forever = true })
		r.snapshot(local, sb.ID, "old")
		time.Sleep(2 * time.Hour)
		r.snapshot(local, sb.ID, "new")
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		page, err := r.Snapshots(t.Context(), local, sandbox.SnapshotFilter{})
		if err != nil || len(page.Snapshots) != 1 || page.Snapshots[0].Name != "new" {
			t.Errorf("snapshots after the retention: got %+v, %v; want only new", page, err)
		}
		r.wantImages(1)
	})
}

// hostFileTemplates has a template that mounts a file of the host.
type hostFileTemplates struct{ file string }

func (s hostFileTemplates) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	t, err := templates{}.Resolve(ctx, ref)
	t.Image = engine.ViewOf(t.Image.View().Dir, "", engine.Bind{Source: s.file, Target: "/guest"})
	return t, err
}

// TestProgramsIncludeSnapshots checks that Programs returns files that only a snapshot needs.
func TestProgramsIncludeSnapshots(t *testing.T) {
	guestFile := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(guestFile, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(d *lifecycle.Deps) { d.Templates = hostFileTemplates{guestFile} })
	sb := r.create(alice)
	snapshot := r.snapshot(alice, sb.ID, "")
	if err := r.Forget(t.Context(), alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	if need, err := r.Programs(t.Context()); err != nil || !need[guestFile] {
		t.Errorf("needed: %v %v", need, err)
	}
	if err := r.RemoveSnapshot(t.Context(), alice, snapshot.ID); err != nil {
		t.Fatal(err)
	}
	if need, err := r.Programs(t.Context()); err != nil || need[guestFile] {
		t.Errorf("needed by no sandbox: %v %v", need, err)
	}
}
