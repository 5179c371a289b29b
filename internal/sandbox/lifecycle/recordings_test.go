package lifecycle_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/retained"
)

// recordingsRig is a rig whose sandboxes' commands are recorded.
type recordingsRig struct {
	*rig
	recordings *recording.Store
	path       string
}

func newRecordingsRig(t *testing.T) *recordingsRig {
	t.Helper()
	dir := t.TempDir()
	s := &recordingsRig{path: filepath.Join(dir, "recordings")}
	var with option
	with, s.recordings = retainedStores(dir, nil)
	s.rig = newRig(t, with)
	return s
}

// recordCommand records a command of a sandbox.
func (s *recordingsRig) recordCommand(id string) {
	s.t.Helper()
	output, err := s.recordings.Begin(id, recording.Head{How: "start", Command: []string{"x"}, Started: time.Now()})
	if err != nil {
		s.t.Fatal(err)
	}
	output.Output(1, []byte(commandOutput))
	if err := output.End(recording.Tail{Ended: time.Now()}); err != nil {
		s.t.Fatal(err)
	}
}

// recordedIDs returns the sandboxes that have recordings.
func (s *recordingsRig) recordedIDs() []string {
	s.t.Helper()
	ids, err := s.recordings.List()
	if err != nil {
		s.t.Fatal(err)
	}
	return ids
}

// The output of commands outlives its sandbox if a caller on this machine requests it, and only
// such callers can read it then.
func TestRetainedRecordings(t *testing.T) {
	s := newRecordingsRig(t)
	for _, retain := range []bool{false, true} {
		sb := s.create(alice)
		if k, err := s.Recordings().KeepRecordings(t.Context(), local, sb.ID); err != nil || k.ID != "" {
			t.Errorf("retained although there are no recordings: %+v %v", k, err)
		}
		s.recordCommand(sb.ID)
		_, err := s.Recordings().KeepRecordings(t.Context(), alice, sb.ID)
		wantKind(t, err, fault.Denied, "recordings_not_local")
		if retain {
			k, err := s.Recordings().KeepRecordings(t.Context(), local, sb.ID)
			if err != nil || k.ID != sb.ID || k.ExpiresAt.Sub(k.TakenAt) != retained.Life {
				t.Fatalf("KeepRecordings: got %+v, %v", k, err)
			}
		}
		for _, caller := range []sandbox.Principal{local, alice} {
			if id, err := s.Recordings().Recorded(t.Context(), caller, sb.ID); err != nil || id != sb.ID {
				t.Errorf("Recorded: got %q, %v; want the sandbox", id, err)
			}
		}
		_, err = s.Recordings().Recorded(t.Context(), bob, sb.ID)
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
		if err := s.Forget(t.Context(), local, sb.ID); err != nil {
			t.Fatal(err)
		}
		s.reconcile()
		if got := len(s.recordedIDs()); (got == 1) != retain {
			t.Fatalf("retained %v, and %d sandboxes have recordings", retain, got)
		}
		id, err := s.Recordings().Recorded(t.Context(), local, sb.ID)
		if retain && (err != nil || id != sb.ID) || !retain && fault.KindOf(err) != fault.NotFound {
			t.Errorf("retained %v: got %q %v", retain, id, err)
		}
		// For the key, its sandbox does not exist any more.
		_, err = s.Recordings().Recorded(t.Context(), alice, sb.ID)
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
	}
	list, err := s.Recordings().ListRecordings(t.Context(), local)
	if err != nil || len(list) != 1 {
		t.Fatalf("ListRecordings: got %+v, %v; want one", list, err)
	}
	for _, do := range []func(sandbox.Principal) error{
		func(caller sandbox.Principal) error {
			_, err := s.Recordings().ListRecordings(t.Context(), caller)
			return err
		},
		func(caller sandbox.Principal) error {
			return s.Recordings().DiscardRecordings(t.Context(), caller, list[0].ID)
		},
	} {
		wantKind(t, do(alice), fault.Denied, "recordings_not_local")
	}
	wantKind(t, s.Recordings().DiscardRecordings(t.Context(), local, "../x"), fault.NotFound, "sandbox_not_found")
	if err := s.Recordings().DiscardRecordings(t.Context(), local, list[0].ID); err != nil || len(s.recordedIDs()) != 0 {
		t.Errorf("DiscardRecordings: %v; sandboxes with recordings: %q", err, s.recordedIDs())
	}
	wantKind(t, s.Recordings().DiscardRecordings(t.Context(), local, list[0].ID), fault.NotFound, "recordings_not_found")
	var names []string
	for _, e := range s.record.Entries(audit.Action) {
		var a payload.Action
		if err := json.Unmarshal(e.Data, &a); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(a.Do, "recordings.") && a.Outcome == "ok" {
			names = append(names, a.Do)
		}
	}
	if fmt.Sprint(names) != "[recordings.keep recordings.discard]" {
		t.Errorf("audited actions: got %q", names)
	}
}

// Without an audit entry nothing is retained.
func TestRetainingNeedsAuditEntry(t *testing.T) {
	s := newRecordingsRig(t)
	sb := s.create(local)
	s.recordCommand(sb.ID)
	s.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.Action })
	if k, err := s.Recordings().KeepRecordings(t.Context(), local, sb.ID); err == nil || k.ID != "" {
		t.Errorf("KeepRecordings without an audit entry: got %+v, want an error", k)
	}
	if _, ok := s.recordings.Retained(sb.ID); ok {
		t.Error("recordings are retained without an audit entry")
	}
}

// Recordings are removed when they expire, when there are too many, and when everything is pruned.
// Those of an existing sandbox stay as long as it does.
func TestRetainedRecordingsExpire(t *testing.T) {
	s := newRecordingsRig(t)
	now := time.Now()
	name := func(n int) string { return fmt.Sprintf("i%019d", n) }
	for n := range 103 {
		s.recordCommand(name(n))
		at := now.Add(-time.Duration(n+1) * time.Minute)
		if _, err := s.recordings.Retain(recording.Retained{Sandbox: name(n), TakenAt: at, ExpiresAt: at.Add(retained.Life)}); err != nil {
			t.Fatal(err)
		}
	}
	sb := s.create(local)
	s.recordCommand(sb.ID)
	if _, err := s.Recordings().KeepRecordings(t.Context(), local, sb.ID); err != nil {
		t.Fatal(err)
	}
	if got := s.recordedIDs(); len(got) != 100 || got[0] != name(0) || got[98] != name(98) {
		t.Fatalf("%d sandboxes have recordings: %q", len(got), got)
	}
	at := now.Add(-retained.Life - time.Second)
	if _, err := s.recordings.Retain(recording.Retained{Sandbox: name(5), TakenAt: at, ExpiresAt: at.Add(retained.Life)}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Recordings().Recorded(t.Context(), local, name(5))
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
	// Damaged recordings cannot be found.
	if err := os.WriteFile(filepath.Join(s.path, name(6), "kept"), []byte(`{"sandbox":"other"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.reconcile()
	if got := len(s.recordedIDs()); got != 98 {
		t.Errorf("%d sandboxes have recordings", got)
	}
	if _, err := s.Prune(t.Context(), local); err != nil {
		t.Fatal(err)
	}
	if got := s.recordedIDs(); len(got) != 1 || got[0] != sb.ID {
		t.Errorf("sandboxes with recordings after the prune: got %q, want the existing one", got)
	}
}
