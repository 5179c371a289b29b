package lifecycle_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// failingDialEngine is an engine whose dials of one port fail as a test wants.
type failingDialEngine struct {
	*fake.Engine
	dial func() error
}

const failingPort = 9

func (e *failingDialEngine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if port == failingPort {
		return nil, e.dial()
	}
	return e.Engine.Dial(ctx, id, port)
}

// TestChangingSandboxIsNotMissing checks that a sandbox whose state is being changed is never
// NotFound, which callers would treat as its end.
func TestChangingSandboxIsNotMissing(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	wantCode := func(want string) {
		t.Helper()
		conn, err := r.Dial(t.Context(), sb.ID, 80)
		if err == nil {
			conn.Close()
		}
		if fault.CodeOf(err) != want || fault.KindOf(err) != fault.Conflict {
			t.Errorf("dial: got error %v, want %s", err, want)
		}
		// The redactor of its next instance may exist already.
		if _, err := r.Redactor(t.Context(), sb.ID); err != nil && (fault.CodeOf(err) != want || fault.KindOf(err) != fault.Conflict) {
			t.Errorf("redactor: got error %v, want %s", err, want)
		}
	}
	for at, change := range map[fake.Step]func() error{
		fake.CheckpointSaved: func() error { _, err := r.Pause(t.Context(), alice, sb.ID, false); return err },
		fake.ReplaceReady:    func() error { _, err := r.Reset(t.Context(), alice, sb.ID); return err },
	} {
		if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil {
			t.Fatal(err)
		}
		seen := false
		r.setFault(func(step fake.Step, _ string) error {
			if step == at && !seen {
				seen = true
				wantCode(sandbox.CodeChanged)
			}
			return nil
		})
		if err := change(); err != nil || !seen {
			t.Fatalf("%s: change: %v; the step was reached: %v", at, err, seen)
		}
		r.setFault(nil)
	}
	if _, err := r.Reset(t.Context(), alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	wantCode("sandbox_paused")
	if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Dial(t.Context(), sb.ID, 80); fault.KindOf(err) != fault.NotFound {
		t.Errorf("dial of a removed sandbox: got error %v, want NotFound", err)
	}
	if _, err := r.Redactor(t.Context(), sb.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("redactor of a removed sandbox: got error %v, want NotFound", err)
	}
}

// TestDialErrors checks that an engine's error about a replaced instance is not returned as an
// error of the sandbox, and that the text of an internal error is not returned.
func TestDialErrors(t *testing.T) {
	e := &failingDialEngine{}
	r := newRig(t, func(d *lifecycle.Deps) {
		e.Engine, _ = d.Engines.Default().(*fake.Engine)
		d.Engines = fake.Registry(e)
	})
	sb := r.create(alice)
	stopped := fault.New(fault.NotFound, "sandbox_not_found", "it has stopped")
	internal := errors.New("urpc method failed: connection refused")
	closed := fault.New(fault.Unavailable, "port_closed", "nothing listens")
	reset := func() {
		if _, err := r.Reset(t.Context(), alice, sb.ID); err != nil {
			t.Error(err)
		}
	}
	for name, test := range map[string]struct {
		err    error
		during func()
		kind   fault.Kind
		code   string
	}{
		"stopped":            {stopped, func() {}, fault.NotFound, "sandbox_not_found"},
		"stopped in a reset": {stopped, reset, fault.Conflict, sandbox.CodeChanged},
		"failed":             {internal, func() {}, fault.Unavailable, "sandbox_unreachable"},
		"failed in a reset":  {internal, reset, fault.Conflict, sandbox.CodeChanged},
		"closed":             {closed, func() {}, fault.Unavailable, "port_closed"},
		"closed in a reset":  {closed, reset, fault.Conflict, sandbox.CodeChanged},
	} {
		e.dial = func() error { test.during(); return test.err }
		_, err := r.Dial(t.Context(), sb.ID, failingPort)
		if fault.KindOf(err) != test.kind || fault.CodeOf(err) != test.code || strings.Contains(fault.PublicText(err), "urpc") {
			t.Errorf("%s: got %s, %s, %q; want %s, %s", name, fault.KindOf(err), fault.CodeOf(err), fault.PublicText(err), test.kind, test.code)
		}
	}
}
