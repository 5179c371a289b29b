package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/key"
	"github.com/crannog/crannog/internal/store"
)

// childDir is set in the processes that TestProcessesShareStateAndLimit starts from this binary.
const childDir = "CRANNOG_TEST_STORE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := insertRows(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func open(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fullRow returns a row with a value in every field, so that a test detects a forgotten column.
func fullRow(id string) sandbox.Row {
	at := time.Unix(1_700_000_000, 123456789).UTC()
	return sandbox.Row{
		ControlToken: "control", Process: sandbox.Process{PID: 42, Start: "boot/1"},
		Actor: sandbox.Process{PID: 43, Start: "boot/2"}, CreateTimeout: 8, Run: 9, Pending: "start",
		Base:  sandbox.Base{Image: engine.ViewOf("/r", "/g", engine.Bind{Source: "/s", Target: "/t"}), Hide: []string{"/h"}, Copy: "i0", Revision: "1", Attachment: engine.EgressTap},
		Saved: sandbox.Saved{Image: "image", Sum: "sum", FilesOnly: true, Format: "f"},
		Sandbox: sandbox.Sandbox{
			ID: id, Name: "web", TemplateID: "t", Template: "base", State: sandbox.Running, Owner: "alice", Ephemeral: true,
			StartedAt: at, EndAt: at.Add(1), StoppedAt: at.Add(2), Reason: "oom",
			Metadata: map[string]string{"a": "b\x00ü"}, Env: map[string]string{"C": "d"},
			Limits: sandbox.Limits{
				Limits:         engine.Limits{MemoryBytes: 1, MilliCPU: 2, PIDs: 3, DiskBytes: 4, DiskInodes: 5, ShmBytes: 8},
				CommandTimeout: 6, OutputBytes: 7,
			},
			AccessToken: "access", TrafficToken: "traffic", MaskRequestHost: "mask", Workspace: "/w",
			Engine: "fake", Boundary: engine.NoBoundary, Enforced: []engine.Limit{engine.LimitCPU},
			Access: sandbox.Access{Level: "strict", Net: sandbox.NetDev, Allow: []string{"example.com"}}, PolicyLevel: "strict", PolicyDigest: "sha256:1",
			Checked: []string{"no connection"}, PausedAt: at.Add(3), OnEnd: sandbox.OnEnd{Pause: true, FilesOnly: true, Wake: true},
			Origin: "o", At: "a", Parent: "p",
		},
	}
}

// notStored are fields without a column. Unlinked is determined again by each process, search exists
// only during a creation, Locked has a table of its own, and the others are computed from the columns
// of Base and Saved.
var notStored = []string{"Unlinked", "FilesOnly", "search", "Tracked", "Mounts", "Notes", "Tools", "Keys", "Needs", "ImageDigest", "Saves", "Volumes", "Attachment", "Containers", "Unseen", "Locked"}

func TestEveryFieldIsStored(t *testing.T) {
	s := open(t, t.TempDir())
	want := fullRow("i1")
	for _, v := range []any{want, want.Sandbox, want.Limits, want.Limits.Limits} {
		rv := reflect.ValueOf(v)
		for i := range rv.NumField() {
			name := rv.Type().Field(i).Name
			if rv.Field(i).IsZero() && !slices.Contains(notStored, name) {
				t.Errorf("the test leaves %s.%s empty", rv.Type(), name)
			}
		}
	}
	if err := s.Insert(t.Context(), want, 1); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "i1")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	empty := sandbox.Row{Sandbox: sandbox.Sandbox{ID: "i2", State: sandbox.Creating}}
	if err := s.Insert(t.Context(), empty, 2); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "i2"); err != nil || !reflect.DeepEqual(got, empty) {
		t.Errorf("got %+v, %v; want %+v", got, err, empty)
	}
}

func TestMove(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	r := fullRow("i1")
	r.State, r.Reason, r.StoppedAt = sandbox.Creating, "", time.Time{}
	if err := s.Insert(ctx, r, 1); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(5, 5).UTC()
	for i, step := range []struct {
		move sandbox.Move
		want bool
	}{
		{sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping}, false},
		{sandbox.Move{From: []sandbox.State{sandbox.Creating}, To: sandbox.Running}, true},
		{sandbox.Move{From: []sandbox.State{sandbox.Creating}, To: sandbox.Running}, false},
		{sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, EndedBy: r.EndAt.Add(-1)}, false},
		{sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, EndedBy: r.EndAt, Reason: "timeout"}, true},
		{sandbox.Move{From: []sandbox.State{sandbox.Stopping}, To: sandbox.Stopped, Reason: "killed", At: at}, true},
		{sandbox.Move{From: []sandbox.State{sandbox.Stopping, sandbox.Running, sandbox.Creating}, To: sandbox.Stopped}, false},
	} {
		got, err := s.Move(ctx, "i1", step.move)
		if err != nil || got != step.want {
			t.Errorf("step %d: %t, %v; want %t", i, got, err, step.want)
		}
	}
	got, err := s.Get(ctx, "i1")
	if err != nil || got.State != sandbox.Stopped || got.Reason != "timeout" || !got.StoppedAt.Equal(at) {
		t.Errorf("got %+v, %v; want state stopped and the first reason", got, err)
	}
	if moved, err := s.Move(ctx, "nope", sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopped}); err != nil || moved {
		t.Errorf("Move of an unknown sandbox: got %t, %v", moved, err)
	}
}

// TestDeadlineIsReportedAsTimeout checks that a query that takes too long on a busy host fails with
// a timeout, not with an internal error.
func TestDeadlineIsReportedAsTimeout(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Insert(t.Context(), fullRow("i1"), 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for name, call := range map[string]func() error{
		"list":      func() error { _, err := s.List(ctx, sandbox.Query{}); return err },
		"get":       func() error { _, err := s.Get(ctx, "i1"); return err },
		"insert":    func() error { return s.Insert(ctx, fullRow("i2"), 9) },
		"move":      func() error { _, err := s.Move(ctx, "i1", sandbox.Move{To: sandbox.Stopped}); return err },
		"delete":    func() error { return s.Delete(ctx, "i1") },
		"log":       func() error { return s.Append(ctx, "i1", sandbox.LogEntry{}) },
		"entries":   func() error { _, err := s.Entries(ctx, "i1"); return err },
		"secrets":   func() error { _, err := s.Secrets(ctx, ""); return err },
		"keys":      func() error { _, err := s.Keys(ctx); return err },
		"snapshots": func() error { _, err := s.ListSnapshots(ctx, sandbox.SnapshotQuery{}); return err },
		"approvals": func() error { _, err := s.Approvals(ctx, approval.Query{}); return err },
	} {
		if err := call(); fault.CodeOf(err) != "store_slow" || fault.KindOf(err) != fault.Timeout || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got error %v, want store_slow", name, err)
		}
	}
	if got, err := s.Get(t.Context(), "i1"); err != nil || got.State != fullRow("i1").State {
		t.Errorf("row afterwards: %+v, %v", got, err)
	}
}

func TestInsertChecksNameAndLimit(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Insert(t.Context(), fullRow("i1"), 1); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		change func(*sandbox.Row)
		max    int
		code   string
	}{
		{func(r *sandbox.Row) {}, 2, "sandbox_name_taken"},
		{func(r *sandbox.Row) { r.Name = "other" }, 1, "too_many_sandboxes"},
		{func(r *sandbox.Row) { r.Owner = "bob" }, 2, ""},
	} {
		r := fullRow("i2")
		tc.change(&r)
		err := s.Insert(t.Context(), r, tc.max)
		if tc.code == "" && err != nil || tc.code != "" && fault.CodeOf(err) != tc.code {
			t.Errorf("got %v, want %q", err, tc.code)
		}
	}
	// A name is free again when its sandbox has stopped.
	if _, err := s.Move(t.Context(), "i1", sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopped}); err != nil {
		t.Fatal(err)
	}
	if err := s.Insert(t.Context(), fullRow("i3"), 2); err != nil {
		t.Error(err)
	}
}

func TestLogIsBounded(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	for _, id := range []string{"i1", "i2"} {
		r := fullRow(id)
		r.Name = id
		if err := s.Insert(ctx, r, 5); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		e := sandbox.LogEntry{At: time.Unix(int64(i+1), 0).UTC(), Level: "info", Message: "m", Fields: map[string]string{"i": fmt.Sprint(i)}}
		if err := s.Append(ctx, "i1", e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(ctx, "i2", sandbox.LogEntry{Message: "other"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(ctx, "gone", sandbox.LogEntry{Message: "of no sandbox"}); err != nil {
		t.Errorf("Append for an unknown sandbox: %v", err)
	}
	entries, err := s.Entries(ctx, "i1")
	if err != nil || len(entries) != 200 || entries[0].Fields["i"] != "100" || entries[199].Fields["i"] != "299" {
		t.Errorf("got %d entries, %v; want the newest 200", len(entries), err)
	}
	if err := s.Delete(ctx, "i1"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int{"i1": 0, "i2": 1, "gone": 0} {
		if entries, err := s.Entries(ctx, id); err != nil || len(entries) != want {
			t.Errorf("%s: %d entries, %v; want %d", id, len(entries), err, want)
		}
	}
}

// TestStateFilesArePrivate checks that only the owner can read the tokens in the database.
func TestStateFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state?x=1#y")
	s := open(t, dir)
	if err := s.Insert(t.Context(), fullRow("i1"), 1); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory: got %v, %v; want 700", info, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Fatalf("files: %v, %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(e.Name(), store.FileName) {
			t.Errorf("%s: got mode %v, %v; want 600", e.Name(), info.Mode(), err)
		}
	}
}

// S13: a state directory that others could read becomes private.
func TestS13ReadableDirectoryIsClosed(t *testing.T) {
	for _, mode := range []os.FileMode{0o755, 0o750, 0o711, 0o701} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("directory of mode %o: got mode %v, %v; want 700", mode, info.Mode(), err)
		}
	}
}

func TestOpenRejectsUnusableState(t *testing.T) {
	shared := t.TempDir()
	if err := os.Chmod(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(t.Context(), shared)
	if fault.CodeOf(err) != "state_not_private" {
		t.Errorf("directory that all users can write: got error %v", err)
	}
	newer := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(newer, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(t.Context(), newer)
	if fault.CodeOf(err) != "state_too_new" {
		t.Errorf("later schema: got error %v", err)
	}
	garbage := t.TempDir()
	if err := os.WriteFile(filepath.Join(garbage, store.FileName), []byte(strings.Repeat("not a database ", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(t.Context(), garbage)
	if fault.CodeOf(err) != "store_damaged" {
		t.Errorf("file that is no database: got error %v", err)
	}
	if _, err := store.Open(t.Context(), "/proc/nope"); err == nil || errors.Is(err, fs.ErrExist) {
		t.Errorf("directory that cannot be created: got error %v", err)
	}
}

// insertRows runs in each of several processes that open a new state at the same time.
func insertRows(dir string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, dir)
	if err != nil {
		return err
	}
	for i := range 20 {
		r := fullRow(fmt.Sprintf("i%dx%d", os.Getpid(), i))
		r.Name = ""
		if err := s.Insert(ctx, r, 50); err != nil && fault.KindOf(err) != fault.Exhausted {
			return err
		}
	}
	return s.Close()
}

func TestProcessesShareStateAndLimit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childDir+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("child process: %v: %s", err, out)
			}
		})
	}
	group.Wait()
	rows, err := open(t, dir).List(t.Context(), sandbox.Query{AllOwners: true})
	if err != nil || len(rows) != 50 {
		t.Errorf("got %d rows, %v; want the limit of 50 after 80 insertions", len(rows), err)
	}
}

func TestKeys(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	k := key.Key{ID: "k1", Name: "ci", Opens: key.MCP, Hash: [32]byte{1}, Created: time.Unix(1, 2).UTC()}
	if err := s.InsertKey(ctx, k); err != nil {
		t.Fatal(err)
	}
	if got, err := s.KeyByHash(ctx, k.Hash); err != nil || got != k {
		t.Errorf("KeyByHash: got %+v, %v; want %+v", got, err, k)
	}
	if _, err := s.KeyByHash(ctx, [32]byte{2}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("unknown hash: got error %v, want NotFound", err)
	}
	k.LastUsed = time.Unix(9, 0).UTC()
	for _, at := range []time.Time{k.LastUsed, time.Unix(5, 0)} {
		if err := s.UseKey(ctx, "k1", at); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := s.Keys(ctx); err != nil || len(keys) != 1 || keys[0] != k {
		t.Errorf("Keys: got %+v, %v; want one", keys, err)
	}
	for _, want := range []bool{true, false} {
		if got, err := s.DeleteKey(ctx, "k1"); err != nil || got != want {
			t.Errorf("deleted %t, %v; want %t", got, err, want)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "state")
	for b.Loop() {
		s, err := store.Open(b.Context(), dir)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParallelWrites(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "state"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var n atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := fullRow(fmt.Sprint("i", n.Add(1)))
			r.Name = ""
			if err := s.Insert(b.Context(), r, 1000); err != nil {
				b.Error(err)
			}
			if err := s.Delete(b.Context(), r.ID); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkInsertMoveDelete(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "state"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		r := fullRow("i1")
		if err := s.Insert(b.Context(), r, 5); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Move(b.Context(), "i1", sandbox.Move{From: []sandbox.State{sandbox.Running}, To: sandbox.Stopped}); err != nil {
			b.Fatal(err)
		}
		if err := s.Delete(b.Context(), "i1"); err != nil {
			b.Fatal(err)
		}
	}
}
