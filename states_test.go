package crannog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
)

func TestSnapshotAndRollback(t *testing.T) {
	c, eng := newStackOn(t)
	ctx := t.Context()
	sb, err := c.Create(ctx, Name("dev"), Timeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	before := sb.Info()
	eng.State(sb.ID()).Remember("word", "one")
	snap, err := sb.Snapshot(ctx, api.CreateSnapshot{Name: "clean"})
	if err != nil {
		t.Fatal(err)
	}
	if snap.Name != "clean" || snap.Sandbox != sb.ID() || snap.Template != "base" || snap.FilesOnly || snap.Bytes == 0 || snap.Format == "" || snap.Parent != "" {
		t.Errorf("Snapshot: got %+v", snap)
	}
	eng.State(sb.ID()).Remember("word", "two")
	if err := sb.Rollback(ctx, "clean"); err != nil {
		t.Fatal(err)
	}
	after := sb.Info()
	if got := eng.State(sb.ID()).Memory("word"); got != "one" {
		t.Errorf("memory holds %q", got)
	}
	if after.ID != before.ID || after.AccessToken != before.AccessToken || after.Name != "dev" || after.At != snap.ID {
		t.Errorf("Info: got %+v", after)
	}

	// A new sandbox starts from the snapshot, with its own name and tokens.
	next, err := c.Create(ctx, Template(snap.ID))
	if err != nil {
		t.Fatal(err)
	}
	if info := next.Info(); info.Origin != snap.ID || info.AccessToken == before.AccessToken || info.AccessToken == "" {
		t.Errorf("Info: got %+v", info)
	}
	eng.State(next.ID()).Remember("word", "other")
	if err := next.Reset(ctx); err != nil || eng.State(next.ID()).Memory("word") != "one" {
		t.Errorf("Reset: error %v", err)
	}
	if err := sb.Reset(ctx); err != nil || eng.State(sb.ID()).Memory("word") != "" || sb.Info().At != "" {
		t.Errorf("Reset: error %v, got %+v", err, sb.Info())
	}

	second, err := next.Snapshot(ctx, api.CreateSnapshot{FilesOnly: true})
	if err != nil || second.Parent != snap.ID || !second.FilesOnly || second.Format != "" {
		t.Fatalf("Snapshot: got %+v, error %v", second, err)
	}
	list, err := c.Snapshots(ctx, SnapshotOptions{})
	if err != nil || len(list) != 2 || list[0].ID != second.ID {
		t.Errorf("Snapshots: got %+v, error %v", list, err)
	}
	if list, err := c.Snapshots(ctx, SnapshotOptions{Sandbox: sb.ID(), Name: "clean"}); err != nil || len(list) != 1 {
		t.Errorf("Snapshots: got %+v, error %v", list, err)
	}
	if found, err := c.FindSnapshot(ctx, "clean"); err != nil || found.ID != snap.ID {
		t.Errorf("FindSnapshot: got %+v, error %v", found, err)
	}
	if err := c.RemoveSnapshot(ctx, "clean"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"find": func() error { _, err := c.FindSnapshot(ctx, snap.ID); return err }(), "remove": c.RemoveSnapshot(ctx, snap.ID),
		"rollback": sb.Rollback(ctx, snap.ID), "dots": c.RemoveSnapshot(ctx, ".."),
	} {
		if !errors.Is(err, ErrNotFound) || Code(err) != "snapshot_not_found" {
			t.Errorf("%s of a removed snapshot: %v", what, err)
		}
	}
	if _, err := c.Create(ctx, Template(snap.ID)); !errors.Is(err, ErrNotFound) {
		t.Errorf("create from a removed snapshot: %v", err)
	}
}

func TestForkCreatesIndependentSandboxes(t *testing.T) {
	c, eng := newStackOn(t)
	ctx := t.Context()
	sb, err := c.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	eng.State(sb.ID()).Remember("word", "common")
	copies, err := sb.Fork(ctx, api.CreateFork{Count: 3, TimeoutSeconds: 3600})
	if err != nil || len(copies) != 3 {
		t.Fatalf("Fork: got %d, error %v", len(copies), err)
	}
	seen := map[string]bool{sb.ID(): true, sb.Info().AccessToken: true}
	for _, fork := range copies {
		info := fork.Info()
		if seen[info.ID] || seen[info.AccessToken] || info.Parent != sb.ID() || time.Until(*info.EndsAt) < 50*time.Minute {
			t.Errorf("Info: got %+v", info)
		}
		seen[info.ID], seen[info.AccessToken] = true, true
		if got := eng.State(fork.ID()).Memory("word"); got != "common" {
			t.Errorf("memory holds %q", got)
		}
		eng.State(fork.ID()).Remember("word", info.ID)
		if err := fork.Command("true").Run(); err != nil {
			t.Error(err)
		}
	}
	if got := eng.State(sb.ID()).Memory("word"); got != "common" {
		t.Errorf("a copy changed its source: %q", got)
	}
	if one, err := sb.Fork(ctx, api.CreateFork{}); err != nil || len(one) != 1 {
		t.Errorf("Fork without a count: got %d copies, error %v", len(one), err)
	}
	for _, both := range []api.CreateFork{{Forever: true}, {Forever: true, TimeoutSeconds: 60}} {
		forever, err := sb.Fork(ctx, both)
		if both.TimeoutSeconds > 0 && !errors.Is(err, ErrInvalid) {
			t.Errorf("Fork with both an end and none: error %v, want ErrInvalid", err)
		}
		if both.TimeoutSeconds == 0 && (err != nil || forever[0].Info().EndsAt != nil) {
			t.Errorf("Fork without an end: got %+v, error %v", forever, err)
		}
	}
	if _, err := sb.Fork(ctx, api.CreateFork{Count: 101}); !errors.Is(err, ErrInvalid) {
		t.Errorf("101 copies: %v", err)
	}
}

func TestPauseAndResume(t *testing.T) {
	c, eng := newStackOn(t)
	ctx := t.Context()
	sb, err := c.Create(ctx, Name("dev"), OnEnd(api.OnEnd{Pause: true, Wake: true}))
	if err != nil {
		t.Fatal(err)
	}
	if o := sb.Info().OnEnd; o == nil || *o != (api.OnEnd{Pause: true, Wake: true}) {
		t.Errorf("Info: got %+v", o)
	}
	token := sb.Info().AccessToken
	eng.State(sb.ID()).Remember("word", "kept")
	eng.State(sb.ID()).Write("file", "kept")
	if err := sb.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if info := sb.Info(); info.State != "paused" || info.PausedAt == nil || info.AccessToken != token {
		t.Errorf("Info: got %+v", info)
	}
	if eng.State(sb.ID()) != nil {
		t.Error("a paused sandbox runs")
	}
	if err := sb.Pause(ctx); !errors.Is(err, ErrConflict) || Code(err) != "sandbox_paused" {
		t.Errorf("second Pause: %v", err)
	}
	if _, err := sb.Fork(ctx, api.CreateFork{}); !errors.Is(err, ErrConflict) {
		t.Errorf("Fork of a paused sandbox: %v", err)
	}
	if list, err := c.List(ctx, ListOptions{}); err != nil || len(list) != 0 {
		t.Errorf("List of running sandboxes: got %v, error %v", list, err)
	}
	if list, err := c.List(ctx, ListOptions{States: []string{"running", "paused"}}); err != nil || len(list) != 1 {
		t.Errorf("List of paused sandboxes: got %v, error %v", list, err)
	}
	if err := sb.Resume(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	info := sb.Info()
	if info.State != "running" || info.PausedAt != nil || info.AccessToken != token || time.Until(*info.EndsAt) < 50*time.Minute {
		t.Errorf("Info: got %+v", info)
	}
	if got := eng.State(sb.ID()).Memory("word"); got != "kept" {
		t.Errorf("memory holds %q", got)
	}
	if err := sb.PauseFiles(ctx); err != nil {
		t.Fatal(err)
	}
	// A command is traffic, which resumes this sandbox because of OnEnd.Wake.
	if _, err := sb.Exec(ctx, api.Exec{Cmd: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	if s := eng.State(sb.ID()); s.Memory("word") != "" || s.File("file") != "kept" {
		t.Errorf("State: got %q, %q", s.Memory("word"), s.File("file"))
	}
	// ResumeFiles discards saved memory.
	eng.State(sb.ID()).Remember("word", "again")
	if err := sb.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := sb.ResumeFiles(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	if s, info := eng.State(sb.ID()), sb.Info(); s.Memory("word") != "" || s.File("file") != "kept" || info.State != "running" || info.AccessToken != token {
		t.Errorf("State: got %q, %q, %+v", s.Memory("word"), s.File("file"), info)
	}
	pruned, err := c.Prune(ctx)
	if err != nil || len(pruned.Removed) != 0 {
		t.Errorf("Prune: got %+v, error %v", pruned, err)
	}
}

func TestStateCallsOnMissingSandbox(t *testing.T) {
	c := newStack(t)
	ctx := t.Context()
	missing := &Sandbox{client: c, info: api.Sandbox{ID: "i0000000000000000000"}}
	for what, err := range map[string]error{
		"pause": missing.Pause(ctx), "resume": missing.Resume(ctx, 0), "reset": missing.Reset(ctx), "rollback": missing.Rollback(ctx, "x"),
		"fork":     func() error { _, err := missing.Fork(ctx, api.CreateFork{}); return err }(),
		"snapshot": func() error { _, err := missing.Snapshot(ctx, api.CreateSnapshot{}); return err }(),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of a missing sandbox: got %v, want ErrNotFound", what, err)
		}
	}
	sb, err := c.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Snapshot(ctx, api.CreateSnapshot{Name: "a b"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a bad name: %v", err)
	}
	if err := sb.Resume(ctx, -time.Second); !errors.Is(err, ErrInvalid) {
		t.Errorf("a time before now: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := sb.Pause(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("Pause with a canceled context: %v", err)
	}
	if err := sb.Rollback(ctx, strings.Repeat("a", 300)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a long name: %v", err)
	}
}
