package volumes_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/volumes"
	"github.com/crannog/crannog/internal/state/volume"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// rows are the sandboxes of a test.
type rows []sandbox.Row

func (r rows) List(context.Context, sandbox.Query) ([]sandbox.Row, error) { return r, nil }

func (r rows) CountRunning(context.Context, sandbox.Query) (int, error) { return len(r), nil }

var local = sandbox.Principal{Local: true}

func key(id string) sandbox.Principal { return sandbox.Principal{KeyID: id} }

func newService(t *testing.T, r *rows) *volumes.Service {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := volumes.New(volumes.Deps{
		Store: volume.Open(filepath.Join(t.TempDir(), "volumes"), log), Rows: r, Audit: auditlog.New(&audittest.Log{}, log), Log: log, Budget: 48 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestKeysSeeTheirOwnVolumes(t *testing.T) {
	hosttest.Need(t, hosttest.Loop)
	s := newService(t, &rows{})
	mine, err := s.Create(t.Context(), key("a"), volumes.Request{Name: "data", Bytes: volume.MinBytes})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{mine.Name, mine.ID} {
		if _, err := s.Find(key("b"), ref); fault.KindOf(err) != fault.NotFound {
			t.Errorf("%s of another key: %v", ref, err)
		}
		if err := s.Remove(t.Context(), key("b"), ref); fault.KindOf(err) != fault.NotFound {
			t.Errorf("removal of %s of another key: %v", ref, err)
		}
		if v, err := s.Find(key("a"), ref); err != nil || v.ID != mine.ID {
			t.Errorf("%s of the own key: %v", ref, err)
		}
	}
	if list, err := s.List(t.Context(), key("b")); err != nil || len(list) != 0 {
		t.Errorf("another key sees %v, %v", list, err)
	}
	if list, err := s.List(t.Context(), local); err != nil || len(list) != 1 {
		t.Errorf("a local caller sees %v, %v", list, err)
	}
	if _, err := s.Find(sandbox.Principal{}, mine.ID); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("no caller: %v", err)
	}
	for id, token := range map[string]string{mine.ID: "wrong", "vunknown": mine.Token} {
		if _, err := s.ByToken(id, token); fault.KindOf(err) != fault.Unauthenticated {
			t.Errorf("volume %s with the token %s: got error %v", id, token, err)
		}
	}
	if who, err := s.ByToken(mine.ID, mine.Token); err != nil || who != key("a") {
		t.Errorf("the own token: %v, %v", who, err)
	}
	if _, err := s.Create(t.Context(), key("b"), volumes.Request{Name: "data", Unlimited: true}); fault.KindOf(err) != fault.Denied {
		t.Errorf("a key without a quota: %v", err)
	}
	if _, err := s.Create(t.Context(), key("a"), volumes.Request{Name: "more", Bytes: 40 << 20}); fault.CodeOf(err) != "volume_budget" {
		t.Errorf("more than the budget: %v", err)
	}
}

func TestVolumesInUse(t *testing.T) {
	used := &rows{}
	s := newService(t, used)
	v, err := s.Create(t.Context(), local, volumes.Request{Name: "data", Unlimited: true})
	if err != nil {
		t.Fatal(err)
	}
	setUser := func(state sandbox.State, readOnly bool) {
		*used = rows{{Sandbox: sandbox.Sandbox{ID: "i1", State: state}, Base: sandbox.Base{Volumes: []sandbox.VolumeMount{{ID: v.ID, ReadOnly: readOnly}}}}}
	}
	for _, c := range []struct {
		state             sandbox.State
		readOnly          bool
		removed, snapshot bool
	}{
		{sandbox.Running, false, false, false}, {sandbox.Running, true, false, true}, {sandbox.Paused, false, false, true},
		{sandbox.Creating, false, false, false},
	} {
		setUser(c.state, c.readOnly)
		copied, err := s.Snapshot(t.Context(), local, "data", "copy")
		if (err == nil) != c.snapshot || err != nil && fault.CodeOf(err) != "volume_in_use" {
			t.Errorf("%s, read-only %v: snapshot: %v", c.state, c.readOnly, err)
		}
		if err == nil {
			if err := s.Remove(t.Context(), local, copied.ID); err != nil {
				t.Error(err)
			}
		}
		if err := s.Remove(t.Context(), local, "data"); fault.CodeOf(err) != "volume_in_use" {
			t.Errorf("%s: removal: %v", c.state, err)
		}
	}
	setUser(sandbox.Stopped, false)
	if err := s.Remove(t.Context(), local, "data"); err != nil {
		t.Errorf("removal of the volume of an ended sandbox: %v", err)
	}
}
