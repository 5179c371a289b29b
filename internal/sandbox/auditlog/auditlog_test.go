package auditlog_test

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

func newLog(t *testing.T) (*auditlog.Log, *audittest.Log) {
	t.Helper()
	r := &audittest.Log{}
	return auditlog.New(r, slog.New(slog.NewTextHandler(t.Output(), nil))), r
}

// actions returns the payloads of all entries about actions.
func actions(t *testing.T, r *audittest.Log) (list []payload.Action) {
	t.Helper()
	for _, e := range r.Entries() {
		if e.Kind != audit.Action {
			continue
		}
		var a payload.Action
		if err := json.Unmarshal(e.Data, &a); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

// TestActionHasOneEntry checks that an action has one entry, even if its implementation has
// committed it already.
func TestActionHasOneEntry(t *testing.T) {
	l, r := newLog(t)
	ctx, a := l.Begin(t.Context(), "alice", "fork", "web")
	auditlog.About(ctx, "one")
	auditlog.About(ctx, "another")
	if err := auditlog.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(ctx, nil); err != nil {
		t.Fatal(err)
	}
	all := r.Entries()
	if got := actions(t, r); len(got) != 1 || got[0].Do != "fork" || got[0].Outcome != "ok" || got[0].Ref != "web" || all[0].Sandbox != "one" || all[0].Actor != "alice" {
		t.Errorf("got entries %+v, want one of a fork of sandbox one by alice", all)
	}
	if auditlog.Actor(t.Context()) != auditlog.Server {
		t.Error("without a caller the server is not the actor")
	}
}

// TestCreationIsWrittenWithStart checks that the entry of a creation is written together with that
// of the start. The entry of a fork is not, because a fork starts many sandboxes.
func TestCreationIsWrittenWithStart(t *testing.T) {
	for name, want := range map[string]int{auditlog.Create: 2, "fork": 1} {
		l, r := newLog(t)
		ctx, a := l.Begin(t.Context(), "alice", name, "")
		if err := l.AppendStart(ctx, "one", auditlog.Entry(ctx, audit.SandboxStarted, "one", payload.Started{})); err != nil {
			t.Fatal(err)
		}
		if got := len(r.Entries()); got != want {
			t.Errorf("%s: %d entries with the start, want %d", name, got, want)
		}
		if err := a.Commit(ctx, nil); err != nil || len(r.Entries()) != 2 {
			t.Errorf("%s: got %d entries after Commit, %v; want 2", name, len(r.Entries()), err)
		}
	}
}

// TestRefusedEntryStopsActionOrIsCounted checks that Commit fails if the audit log refuses the
// entry. Finish succeeds, and the number of missing entries is written when the log works again.
func TestRefusedEntryStopsActionOrIsCounted(t *testing.T) {
	l, r := newLog(t)
	r.Fail(func(audit.Draft) bool { return true })
	ctx, a := l.Begin(t.Context(), "alice", "snapshot", "web")
	if err := a.Commit(ctx, nil); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Commit without a working log: got error %v, want Unavailable", err)
	}
	ctx, a = l.Begin(t.Context(), "alice", "remove", "web")
	if err := a.Finish(ctx, nil); err != nil {
		t.Errorf("Finish without a working log: %v", err)
	}
	r.Fail(nil)
	l.Tick(t.Context())
	all := r.Entries()
	if len(all) != 1 || all[0].Kind != audit.Gap {
		t.Fatalf("got entries %+v, want one gap", all)
	}
	var gap struct{ Lost int }
	if err := json.Unmarshal(all[0].Data, &gap); err != nil || gap.Lost != 1 {
		t.Errorf("gap: got %s, %v; want one lost entry", all[0].Data, err)
	}
}

// TestEntriesOfRefusedRequestsAreLimited checks that the number of entries per minute is limited,
// because a client can send any number of requests that are refused.
func TestEntriesOfRefusedRequestsAreLimited(t *testing.T) {
	l, r := newLog(t)
	for range 500 {
		l.Refused("unknown", "GET /", "unauthenticated")
		ctx, a := l.Begin(t.Context(), "alice", "remove", "none")
		if err := a.Finish(ctx, fault.New(fault.NotFound, "sandbox_not_found", "there is none")); err == nil {
			t.Fatal("the error of an action is lost")
		}
	}
	if n := len(actions(t, r)); n == 0 || n > 60 {
		t.Errorf("got %d entries, want 1 to 60", n)
	}
}
