package store_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/hosttools"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/hostfiles"
)

func stored(id string) sandbox.Stored {
	r := fullRow("i1")
	return sandbox.Stored{
		Snapshot: sandbox.Snapshot{
			ID: id, Name: "n", Owner: "alice", Sandbox: "i1", Parent: "p", TemplateID: "t", Template: "base", FilesOnly: true,
			CreatedAt: time.Unix(1_700_000_000, 123456789).UTC(), Bytes: 5, Format: "f", Engine: "e",
		},
		Sum: "sum", Base: r.Base, Limits: r.Limits, Workspace: "/w", Access: r.Access, Process: r.Process,
	}
}

func TestEverySnapshotFieldIsStored(t *testing.T) {
	s := open(t, t.TempDir())
	want := stored("a")
	want.KeptFor = "t:1"
	want.Base = sandbox.Base{
		Start: &sandbox.Start{Command: []string{"serve"}, Ready: []string{"check"}, Timeout: 1},
		Image: engine.ViewOf("/r", "/g", engine.Bind{Source: "/s", Target: "/t"}), Hide: []string{"/h"}, ReadOnly: []string{"/o"},
		Absent: []string{"/a"}, Repos: []sandbox.Repo{{Top: "/t", Index: "/t/.git/index", Hidden: []string{"h"}, Tracked: 1, Names: []string{"h"}}},
		Volumes: []sandbox.VolumeMount{{ID: "v1", Name: "data", Target: "/data", ReadOnly: true}},
		NoRoot:  true, ImageDigest: "sha256:1", Saves: []string{"files"}, Copy: "i0", Env: map[string]string{"A": "b"}, DefaultUser: "u", DefaultDir: "/d", Revision: "1", Knows: 1, Attachment: engine.EgressTap, TakesWorkspace: true, Containers: true, Unseen: []string{"memory maps"}, Locked: "sha256:1",
		Keys:   sandbox.Keys{Count: 2, Files: []sandbox.KeyFile{{}}, Looked: 3, Left: 4},
		Tools:  []hosttools.Tree{{Manager: "nvm", Dir: "/h/.nvm", Source: "/s/.nvm", Bin: []string{"bin"}, Env: map[string]string{"C": "d"}}},
		Mounts: []sandbox.Mount{{Name: "n", Source: "/s", Target: "/t", ReadOnly: true}}, Links: []engine.Link{{Path: "/l", Target: "/t"}},
		Git: &sandbox.Shared{Source: "/r", Target: "/r", Worktree: "w"}, Notes: []string{"note"},
		Needs: &sandbox.Needs{Files: []hostfiles.File{{Path: "/f", Inside: "/i", Size: 1, Sum: "s", Mode: 0o755, Kept: true}, {Path: "/d", Dir: true}}},
	}
	want.Base.Image.HostView.Owners, want.Base.Image.HostView.Runner = "/owners", &engine.Runner{Path: "/r"}
	want.Base.Image.HostView.Packed = &engine.Packed{File: "/p", Owners: "/owners", Binds: []engine.Bind{{Source: "/s", Target: "/t"}}}
	for _, v := range []any{want, want.Snapshot, want.Base, want.Base.Image.View()} {
		rv := reflect.ValueOf(v)
		for i := range rv.NumField() {
			// OwnBytes is computed when snapshots are listed. Needs is stored in the base only.
			name := rv.Type().Field(i).Name
			notStored := name == "OwnBytes" || rv.Type() == reflect.TypeFor[sandbox.Snapshot]() && name == "Needs"
			if rv.Field(i).IsZero() && !notStored {
				t.Errorf("the test leaves %s.%s empty", rv.Type(), rv.Type().Field(i).Name)
			}
		}
	}
	if err := s.InsertSnapshot(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got, err := s.GetSnapshot(t.Context(), "a"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := s.GetSnapshot(t.Context(), "b"); fault.CodeOf(err) != "snapshot_not_found" {
		t.Errorf("unknown snapshot: got error %v, want snapshot_not_found", err)
	}
}

// F24: which files a saved memory needs is known only after it was written, and after its row was
// inserted.
func TestF24NeedsAreStoredWithTheSnapshot(t *testing.T) {
	s, ctx := open(t, t.TempDir()), t.Context()
	if err := s.Insert(ctx, fullRow("i1"), 1); err != nil {
		t.Fatal(err)
	}
	for id, needs := range map[string]*sandbox.Needs{"a": nil, "b": {Files: []hostfiles.File{{Path: "/f'\"", Size: 1, Sum: "s"}}}} {
		n := stored(id)
		n.Sum = ""
		if err := s.InsertSnapshot(ctx, n); err != nil {
			t.Fatal(err)
		}
		if err := s.KeepSnapshot(ctx, id, "sum", 7, needs); err != nil {
			t.Fatal(err)
		}
		n.Base.Needs = needs
		if got, err := s.GetSnapshot(ctx, id); err != nil || !reflect.DeepEqual(got.Base, n.Base) || got.Sum != "sum" || got.Bytes != 7 {
			t.Errorf("snapshot %s: got %+v, %v", id, got, err)
		}
	}
}

func TestOnlyCompleteSnapshotsAreListed(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	r := fullRow("i1")
	r.At = ""
	if err := s.Insert(ctx, r, 1); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(100, 0).UTC()
	for i, id := range []string{"a", "b", "c"} {
		n := stored(id)
		n.Sum, n.Parent, n.CreatedAt = "", map[string]string{"b": "a", "c": "b"}[id], at.Add(time.Duration(i))
		if err := s.InsertSnapshot(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	all := sandbox.SnapshotQuery{AllOwners: true}
	if rows, err := s.ListSnapshots(ctx, all); err != nil || len(rows) != 0 {
		t.Errorf("before they are complete: got %d rows, %v; want none", len(rows), err)
	}
	unfinished := all
	unfinished.Unfinished = true
	if rows, err := s.ListSnapshots(ctx, unfinished); err != nil || len(rows) != 3 {
		t.Errorf("unfinished: got %d rows, %v; want 3", len(rows), err)
	}
	for _, id := range []string{"a", "b", "c"} {
		if held, err := s.HoldsImage(ctx, id); err != nil || !held {
			t.Errorf("image %s is held: got %t, %v; want true", id, held, err)
		}
		if err := s.KeepSnapshot(ctx, id, "sum-"+id, 7, nil); err != nil {
			t.Fatal(err)
		}
		if sum, err := s.SumOf(ctx, id); err != nil || sum != "sum-"+id {
			t.Errorf("sum of %s is %q, %v", id, sum, err)
		}
	}
	rows, err := s.ListSnapshots(ctx, sandbox.SnapshotQuery{SnapshotFilter: sandbox.SnapshotFilter{Name: "n"}, Owner: "alice"})
	if err != nil || len(rows) != 1 || rows[0].ID != "c" || rows[0].Bytes != 7 {
		t.Errorf("snapshots named n: got %+v, %v; want c", rows, err)
	}
	if rows, err := s.ListSnapshots(ctx, sandbox.SnapshotQuery{Owner: "bob"}); err != nil || len(rows) != 0 {
		t.Errorf("snapshots of bob: got %+v, %v; want none", rows, err)
	}
	page := all
	page.Limit, page.AfterTime, page.AfterID = 1, at.Add(2), "c"
	if rows, err = s.ListSnapshots(ctx, page); err != nil || len(rows) != 1 || rows[0].ID != "b" {
		t.Errorf("the page after c: %+v, %v", rows, err)
	}
	if got, err := s.Get(ctx, "i1"); err != nil || got.At != "c" {
		t.Errorf("the current snapshot of the sandbox is %q, %v", got.At, err)
	}
	for range 2 {
		if err := s.DeleteSnapshot(ctx, "b"); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.GetSnapshot(ctx, "c"); err != nil || n.Parent != "a" {
		t.Errorf("parent of c is %q, %v; want a", n.Parent, err)
	}
	if err := s.DeleteSnapshot(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(ctx, "i1"); err != nil || got.At != "a" {
		t.Errorf("the current snapshot of the sandbox is %q, %v", got.At, err)
	}
	if err := s.KeepSnapshot(ctx, "c", "sum", 1, nil); err == nil {
		t.Error("KeepSnapshot of a removed snapshot succeeds")
	}
}

// A copy of a workspace and an image are kept as long as a snapshot or sandbox needs them.
func TestHoldsFindsUsersOfCopiesAndImages(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	r := fullRow("i1")
	r.State = sandbox.Paused
	if err := s.Insert(ctx, r, 1); err != nil {
		t.Fatal(err)
	}
	check := func(want bool, what string) {
		t.Helper()
		if held, err := s.Holds(ctx, "i0", "i9"); err != nil || held != want {
			t.Errorf("%s: the copy is held: got %t, %v; want %t", what, held, err, want)
		}
		if held, err := s.HoldsImage(ctx, "image"); err != nil || held != want {
			t.Errorf("%s: the image is held: got %t, %v; want %t", what, held, err, want)
		}
	}
	check(true, "paused")
	if held, err := s.Holds(ctx, "i0", "i1"); err != nil || held {
		t.Errorf("the copy is held by a sandbox other than i1: got %t, %v; want false", held, err)
	}
	if sum, err := s.SumOf(ctx, "image"); err != nil || sum != "sum" {
		t.Errorf("digest of the image: got %q, %v; want sum", sum, err)
	}
	if _, err := s.Move(ctx, "i1", sandbox.Move{From: []sandbox.State{sandbox.Paused}, To: sandbox.Stopped}); err != nil {
		t.Fatal(err)
	}
	check(false, "stopped")
}

// TestMoveChecksConditionsTogether checks that of two moves one succeeds, and that a reached limit
// is not reported as a change by another caller.
func TestMoveChecksConditionsTogether(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	for _, id := range []string{"i1", "i2", "i3"} {
		r := fullRow(id)
		r.Name, r.State, r.Reason, r.Run, r.Actor = id, sandbox.Running, "", 1, sandbox.Process{}
		if err := s.Insert(ctx, r, 9); err != nil {
			t.Fatal(err)
		}
	}
	running, me, you := []sandbox.State{sandbox.Running}, sandbox.Process{PID: 1, Start: "a"}, sandbox.Process{PID: 1, Start: "b"}
	image, none := sandbox.Saved{Image: "x", Sum: "y"}, time.Time{}
	for i, step := range []struct {
		id   string
		m    sandbox.Move
		want bool
		code string
	}{
		{"i1", sandbox.Move{From: running, To: sandbox.Pausing, By: me, Run: 2}, false, ""},
		{"i1", sandbox.Move{From: running, To: sandbox.Pausing, By: me, Run: 1, MaxPaused: 1, Change: &sandbox.Change{Saved: &image}}, true, ""},
		{"i2", sandbox.Move{From: running, To: sandbox.Pausing, By: me, MaxPaused: 1}, false, "too_many_paused"},
		{"i2", sandbox.Move{From: running, To: sandbox.Pausing, By: me, Run: 7, MaxPaused: 1}, false, ""},
		{"i1", sandbox.Move{From: []sandbox.State{sandbox.Pausing}, To: sandbox.Pausing, By: you, WasBy: you}, false, ""},
		{"i1", sandbox.Move{From: []sandbox.State{sandbox.Pausing}, To: sandbox.Pausing, By: you, WasBy: me}, true, ""},
		{"i1", sandbox.Move{From: []sandbox.State{sandbox.Pausing}, To: sandbox.Paused, Change: &sandbox.Change{PausedAt: &time.Time{}}}, true, ""},
		{"i1", sandbox.Move{From: []sandbox.State{sandbox.Paused}, To: sandbox.Resuming, Next: true, MaxLive: 2}, false, "too_many_sandboxes"},
		{"i1", sandbox.Move{From: []sandbox.State{sandbox.Paused}, To: sandbox.Resuming, Next: true, MaxLive: 3, Change: &sandbox.Change{EndAt: &none}}, true, ""},
	} {
		moved, err := s.Move(ctx, step.id, step.m)
		if moved != step.want || (err != nil) != (step.code != "") || err != nil && fault.CodeOf(err) != step.code {
			t.Errorf("step %d: got %t, %v; want %t, %q", i, moved, err, step.want, step.code)
		}
	}
	got, err := s.Get(ctx, "i1")
	if err != nil || got.Run != 2 || got.Saved != image || got.Actor != you || !got.EndAt.IsZero() || !got.PausedAt.IsZero() {
		t.Errorf("after all steps, i1 is %+v, %v", got, err)
	}
}
