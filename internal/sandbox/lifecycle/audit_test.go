package lifecycle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// readOnlyMethods are the methods for callers that change nothing. A new method must be either here
// or in recordedActions, which checks its audit entry.
var readOnlyMethods = []string{
	"Get", "List", "Metrics", "Logs", "Policy", "Flows", "FlowSize", "Asked", "Snapshots", "FindSnapshot", "Census", "Queue",
	"AskAccess", // package approval records the request
}

// recordedActions calls every method that changes something, with the name of its action.
var recordedActions = []struct {
	method, do string
	act        func(ctx context.Context, r *rig, id string) error
}{
	{"SetTimeout", "timeout", func(ctx context.Context, r *rig, id string) error {
		_, err := r.SetTimeout(ctx, alice, id, time.Hour)
		return err
	}},
	{"Extend", "extend", func(ctx context.Context, r *rig, id string) error {
		_, err := r.Extend(ctx, alice, id, 2*time.Hour)
		return err
	}},
	{"SetAccess", "access", func(ctx context.Context, r *rig, id string) error {
		_, err := r.SetAccess(ctx, alice, id, func(a sandbox.Access) (sandbox.Access, error) { return a, nil })
		return err
	}},
	{"Snapshot", "snapshot", func(ctx context.Context, r *rig, id string) error {
		_, err := r.Snapshot(ctx, alice, id, sandbox.SnapshotRequest{Name: "one"})
		return err
	}},
	{"Rollback", "rollback", func(ctx context.Context, r *rig, id string) error {
		_, err := r.Rollback(ctx, alice, id, "one")
		return err
	}},
	{"Reset", "reset", func(ctx context.Context, r *rig, id string) error { _, err := r.Reset(ctx, alice, id); return err }},
	{"Fork", "fork", func(ctx context.Context, r *rig, id string) error {
		_, err := r.Fork(ctx, alice, id, sandbox.ForkRequest{Count: 2})
		return err
	}},
	{"RemoveSnapshot", "snapshot.remove", func(ctx context.Context, r *rig, id string) error { return r.RemoveSnapshot(ctx, alice, "one") }},
	{"Pause", "pause", func(ctx context.Context, r *rig, id string) error {
		_, err := r.Pause(ctx, alice, id, false)
		return err
	}},
	{"Resume", "resume", func(ctx context.Context, r *rig, id string) error {
		_, _, err := r.Resume(ctx, alice, id, 0)
		return err
	}},
	{"ResumeFiles", "resume", func(ctx context.Context, r *rig, id string) error {
		_, _, err := r.ResumeFiles(ctx, alice, id, 0)
		return err
	}},
	{"Remove", "remove", func(ctx context.Context, r *rig, id string) error { return r.Remove(ctx, alice, id) }},
	{"Forget", "forget", func(ctx context.Context, r *rig, id string) error { return r.Forget(ctx, alice, id) }},
}

// recordedWithoutSandbox are audited actions whose entry need not name an existing sandbox.
var recordedWithoutSandbox = []struct {
	method, do string
	act        func(ctx context.Context, r *rig) error
}{
	{"Prune", "prune", func(ctx context.Context, r *rig) error {
		_, err := r.Prune(ctx, sandbox.Principal{Local: true})
		return err
	}},
	{"SignalProcess", "process.signal", func(ctx context.Context, r *rig) error {
		err := r.SignalProcess(ctx, alice, "unknown", 2, syscall.SIGTERM)
		if fault.KindOf(err) != fault.NotFound {
			return fmt.Errorf("signal in an unknown sandbox: %w", err)
		}
		return nil
	}},
}

// Actions that concern no single sandbox, and refused ones, have an entry too.
func TestActionsWithoutSandboxAreInTheAuditLog(t *testing.T) {
	for _, d := range recordedWithoutSandbox {
		r := newRig(t)
		if err := d.act(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := actions(t, r.record); len(got) != 1 || got[0].Do != d.do {
			t.Errorf("%s: got actions %+v, want only %s", d.method, got, d.do)
		}
	}
}

func actions(t *testing.T, r *audittest.Log) []payload.Action {
	t.Helper()
	var out []payload.Action
	for _, e := range r.Entries(audit.Action) {
		var a payload.Action
		if err := json.Unmarshal(e.Data, &a); err != nil {
			t.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// countKinds counts the entries about a sandbox by their kinds.
func countKinds(r *audittest.Log, id string) map[audit.Kind]int {
	n := make(map[audit.Kind]int)
	for _, e := range r.Entries() {
		if e.Sandbox == id {
			n[e.Kind]++
		}
	}
	return n
}

// P33: each request is one action with its name, and one entry for what happened to the sandbox.
func TestActionsAreInTheAuditLog(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Name = "web" })
	want := []string{"create"}
	for _, d := range recordedActions {
		if err := d.act(t.Context(), r, sb.ID); err != nil {
			t.Fatalf("%s: %v", d.do, err)
		}
		want = append(want, d.do)
	}
	var got []string
	for i, e := range r.record.Entries(audit.Action) {
		a := actions(t, r.record)[i]
		got = append(got, a.Do)
		if e.Actor != "key:alice" || e.Sandbox != sb.ID || a.Outcome != "ok" {
			t.Errorf("%s of %s by %s: %+v", a.Do, e.Sandbox, e.Actor, a)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("actions %v, want %v", got, want)
	}
	// The copies of the fork have entries of their own.
	life := countKinds(r.record, sb.ID)
	for kind, n := range map[audit.Kind]int{
		audit.SandboxStarted: 1, audit.SandboxEnded: 1, audit.SandboxPaused: 1, audit.SandboxResumed: 1, audit.SandboxReplaced: 2,
		audit.SandboxCopied: 1, audit.SnapshotTaken: 1, audit.SnapshotRemoved: 1, audit.PolicyChanged: 1,
	} {
		if life[kind] != n {
			t.Errorf("%d entries of the kind %s, want %d", life[kind], kind, n)
		}
	}
	if n := len(r.record.Entries(audit.SandboxStarted)); n != 3 {
		t.Errorf("%d started, want the sandbox and two copies", n)
	}
}

// A new method must either be audited or be listed as one that needs no entry.
func TestEachMethodIsAuditedOrReadOnly(t *testing.T) {
	known := slices.Concat(readOnlyMethods, []string{"Create"})
	for _, d := range recordedActions {
		known = append(known, d.method)
	}
	for _, d := range recordedWithoutSandbox {
		known = append(known, d.method)
	}
	for method := range reflect.TypeFor[*audited.Service]().Methods() {
		if forCaller(method.Type) && !slices.Contains(known, method.Name) {
			t.Errorf("%s: list the method in readOnlyMethods or in recordedActions", method.Name)
		}
	}
}

// forCaller reports whether a method takes the principal that calls it.
func forCaller(method reflect.Type) bool {
	for in := range method.Ins() {
		if in == reflect.TypeFor[sandbox.Principal]() {
			return true
		}
	}
	return false
}

// TestRefusedEntryStopsAction checks that an action whose entry the audit log refuses does not
// happen and leaves nothing. The end of a sandbox does happen.
func TestRefusedEntryStopsAction(t *testing.T) {
	refuses := func(kinds ...audit.Kind) func(audit.Draft) bool {
		return func(d audit.Draft) bool { return len(kinds) == 0 || slices.Contains(kinds, d.Kind) }
	}
	for _, broken := range [][]audit.Kind{nil, {audit.SandboxStarted}, {audit.Action}} {
		r := newRig(t)
		r.record.Fail(refuses(broken...))
		_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Name: "web"})
		wantKind(t, err, fault.Unavailable, "record_unavailable")
		r.wantNothingLeft()
		r.record.Fail(nil)
		r.create(alice, func(c *sandbox.CreateRequest) { c.Name = "web" })
	}
	for _, name := range []string{"SetAccess", "Fork", "Snapshot"} {
		r := newRig(t)
		sb := r.create(alice)
		r.record.Fail(refuses())
		d := recordedActions[slices.IndexFunc(recordedActions, func(d struct {
			method, do string
			act        func(ctx context.Context, r *rig, id string) error
		},
		) bool {
			return d.method == name
		})]
		wantKind(t, d.act(t.Context(), r, sb.ID), fault.Unavailable, "record_unavailable")
		if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
			t.Error(err)
		}
		r.wantNothingLeft()
	}
}

func TestResumeNeedsAuditEntry(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	r.record.Fail(func(audit.Draft) bool { return true })
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatalf("pause while the audit log refuses: %v", err)
	}
	_, _, err := r.Resume(t.Context(), alice, sb.ID, 0)
	wantKind(t, err, fault.Unavailable, "record_unavailable")
	if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Paused {
		t.Errorf("after a refused resumption the sandbox is %s, %v; want paused", got.State, err)
	}
	r.record.Fail(nil)
	if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil {
		t.Error(err)
	}
	gaps := r.record.Entries(audit.Gap)
	var g ingest.Gap
	if len(gaps) != 1 || json.Unmarshal(gaps[0].Data, &g) != nil || g.Lost != 2 || g.Of != "record" || g.Reason != "record_unavailable" {
		t.Errorf("gaps %v: %+v, want one of the pause's two entries", gaps, g)
	}
}

// TestEndIsRecordedOnce checks that a sandbox that ends by itself has one entry about its end, even
// if several callers finish the end.
func TestEndIsRecordedOnce(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	r.engine.Stop(sb.ID, engine.Exit{Reason: engine.ReasonOOM, At: time.Now()})
	hosttest.Eventually(t, "it has ended", func() bool { return countKinds(r.record, sb.ID)[audit.SandboxEnded] == 1 })
	errs := make(chan error)
	for range 4 {
		go func() { errs <- r.Forget(context.Background(), alice, sb.ID) }()
	}
	for range 4 {
		if err := <-errs; err != nil && fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
	}
	if n := countKinds(r.record, sb.ID); n[audit.SandboxEnded] != 1 || n[audit.LimitHit] != 1 {
		t.Errorf("entries about the sandbox: got %v, want one end and one hit limit", n)
	}
}

// TestRefusedRequestsAreAudited checks that requests for another owner's sandbox are audited, but
// cannot fill the audit log.
func TestRefusedRequestsAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for range 1000 {
			if err := r.Remove(t.Context(), bob, "i0123456789012345678"); fault.KindOf(err) != fault.NotFound {
				t.Fatal(err)
			}
		}
		r.Refused("no caller", "GET /v1/sandboxes", "unauthenticated")
		if n := len(actions(t, r.record)); n != 60 {
			t.Errorf("%d entries of 1001 requests", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		all := actions(t, r.record)
		if last := all[len(all)-1]; len(all) != 61 || last.Count != 941 {
			t.Errorf("%d entries, the last %+v", len(all), last)
		}
		if first := all[0]; first.Outcome != "sandbox_not_found" || first.Ref != "i0123456789012345678" {
			t.Errorf("first action: got %+v, want the refused removal", first)
		}
		r.close()
	})
}

// checkAudit checks that the audit log agrees with the rows about each sandbox.
func (r *rig) checkAudit() {
	r.t.Helper()
	state := make(map[string]sandbox.State)
	for _, e := range r.record.Entries() {
		before := state[e.Sandbox]
		switch e.Kind {
		case audit.SandboxStarted:
			if before != "" {
				r.t.Errorf("%s has started twice", e.Sandbox)
			}
			state[e.Sandbox] = sandbox.Running
		case audit.SandboxPaused:
			state[e.Sandbox] = sandbox.Paused
		case audit.SandboxResumed, audit.SandboxReplaced:
			state[e.Sandbox] = sandbox.Running
		case audit.SandboxEnded:
			if before == sandbox.Stopped {
				r.t.Errorf("%s has ended twice", e.Sandbox)
			}
			state[e.Sandbox] = sandbox.Stopped
		default:
			continue
		}
		if before == sandbox.Stopped {
			r.t.Errorf("%s: %s after its end", e.Sandbox, e.Kind)
		}
	}
	rows, err := r.store.List(r.t.Context(), sandbox.Query{AllOwners: true})
	if err != nil {
		r.t.Error(err)
	}
	live := make(map[string]bool)
	for _, row := range rows {
		live[row.ID] = true
		if row.State != sandbox.Waiting && state[row.ID] != row.State {
			r.t.Errorf("%s is %s, but %q in the audit log", row.ID, row.State, state[row.ID])
		}
	}
	for id, s := range state {
		if !live[id] && s != sandbox.Stopped {
			r.t.Errorf("%s does not exist, but is %s in the audit log", id, s)
		}
	}
}
