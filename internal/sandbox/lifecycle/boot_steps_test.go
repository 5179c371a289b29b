package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// errStep is the error with which a step fails.
var errStep = fault.New(fault.Exhausted, "step_fails", "the step fails as the test wants")

// failingDeps is a store, a gateway and a secret store that fail at a chosen step and record their
// contents.
type failingDeps struct {
	sandbox.Store
	mu       sync.Mutex
	fails    string
	attached map[string]bool
	kept     map[string]bool
	ran      []string // executed steps
}

func (b *failingDeps) step(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ran = append(b.ran, name)
	if b.fails == name {
		return errStep
	}
	return nil
}

func (b *failingDeps) fail(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails, b.ran = name, nil
}

func (b *failingDeps) Insert(ctx context.Context, r sandbox.Row, limit int) error {
	return errors.Join(b.step("row"), b.Store.Insert(ctx, r, limit))
}

func (b *failingDeps) Move(ctx context.Context, id string, m sandbox.Move) (bool, error) {
	if m.To == sandbox.Running && slices.Contains(m.From, sandbox.Creating) {
		if err := b.step("running"); err != nil {
			return false, err
		}
	}
	return b.Store.Move(ctx, id, m)
}

func (b *failingDeps) setPresent(list *map[string]bool, id string, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if *list == nil {
		*list = make(map[string]bool)
	}
	if (*list)[id] = on; !on {
		delete(*list, id)
	}
}

func (b *failingDeps) Attach(_ context.Context, a sandbox.Attachment) (sandbox.Link, error) {
	b.setPresent(&b.attached, a.Sandbox, true)
	if err := b.step("network"); err != nil {
		return sandbox.Link{}, err
	}
	null, err := os.Open(os.DevNull)
	return sandbox.Link{End: null}, err
}

func (b *failingDeps) Detach(_ context.Context, id string) error {
	b.setPresent(&b.attached, id, false)
	return nil
}

func (b *failingDeps) Update(context.Context, sandbox.Attachment) error           { return nil }
func (b *failingDeps) Adopt(context.Context, []string) (lost []string, err error) { return nil, nil }

func (b *failingDeps) Keep(_ context.Context, id, _ string, _ map[string]config.Secret) error {
	b.setPresent(&b.kept, id, true)
	return b.step("values")
}

func (b *failingDeps) Drop(_ context.Context, id, _ string) error {
	b.setPresent(&b.kept, id, false)
	return nil
}

func (b *failingDeps) Resolve(context.Context, sandbox.Holder, *policy.Policy) ([]egress.Secret, error) {
	return []egress.Secret{{Name: "KEY", Value: "a value of the sandbox alone"}}, b.step("policy")
}

// TestFailedCreationStepIsUndone lets each step of a creation fail in turn. The caller gets the
// error, and no row, instance, attachment, sealed value, redactor or file is left. The next
// creation succeeds.
func TestFailedCreationStepIsUndone(t *testing.T) {
	b := &failingDeps{}
	events := filepath.Join(t.TempDir(), "events")
	r := newRig(t, func(d *lifecycle.Deps) {
		b.Store = d.Store
		d.Store, d.Gateway, d.Sealed, d.Events = b, b, b, events
	})
	access := binding(t, "KEY")
	access.Values = map[string]config.Secret{"KEY": "x"}
	create := func() (sandbox.Sandbox, error) {
		return r.Create(t.Context(), local, sandbox.CreateRequest{Template: "base", Access: access})
	}
	wantClean := func(when string) {
		t.Helper()
		r.wantNothingLeft()
		if len(b.attached) > 0 || len(b.kept) > 0 {
			t.Errorf("%s: attached %v, sealed %v", when, b.attached, b.kept)
		}
		if rows, err := r.store.List(t.Context(), sandbox.Query{AllOwners: true}); err != nil || len(rows) > 0 {
			t.Errorf("%s: got %d rows, %v; want none", when, len(rows), err)
		}
		if left, err := os.ReadDir(events); err != nil || len(left) > 0 {
			t.Errorf("%s: event files remain: %v, %v", when, left, err)
		}
	}
	for _, step := range []string{"row", "values", "policy", "network", "events", "start", "entry", "running"} {
		t.Run(step, func(t *testing.T) {
			b.fail(step)
			switch step {
			case "events":
				// A file in place of the directory, so that nothing can be created in it.
				if err := errors.Join(os.RemoveAll(events), os.WriteFile(events, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			case "start":
				r.failAt(fake.CreateReady, errStep)
			case "entry":
				r.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.SandboxStarted })
			}
			_, err := create()
			b.fail("")
			r.setFault(nil)
			r.record.Fail(nil)
			switch step {
			case "events":
				if err == nil {
					t.Error("a sandbox was created although its events cannot be written")
				}
				// The undo fails too, so the row stays until the undo is possible.
				if rows, err := r.store.List(t.Context(), sandbox.Query{AllOwners: true}); err != nil || len(rows) != 1 || rows[0].State != sandbox.Stopping {
					t.Errorf("got %d rows, %v; want one in the state stopping", len(rows), err)
				}
				if err := errors.Join(os.Remove(events), os.Mkdir(events, 0o700)); err != nil {
					t.Fatal(err)
				}
				r.reconcile()
				if _, err := r.Prune(t.Context(), local); err != nil {
					t.Error(err)
				}
			case "entry":
				wantKind(t, err, fault.Unavailable, "record_unavailable")
			default:
				wantKind(t, err, fault.Exhausted, "step_fails")
			}
			wantClean("after the failure")
		})
	}
	// Control: all steps are executed if none fails.
	b.fail("")
	sb, err := create()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"row", "values", "policy", "network", "running"} {
		if !slices.Contains(b.ran, step) {
			t.Errorf("a creation does not take the step %s, so that its failure was not tested", step)
		}
	}
	if len(b.attached) != 1 || len(b.kept) != 1 {
		t.Errorf("attached %v, sealed %v", b.attached, b.kept)
	}
	if err := r.Forget(t.Context(), local, sb.ID); err != nil {
		t.Fatal(err)
	}
	wantClean("after its end")
}

// TestFailedResumptionStepIsUndone checks that a failed resumption leaves the sandbox paused with
// its image and without an instance. The next resumption succeeds.
func TestFailedResumptionStepIsUndone(t *testing.T) {
	b := &failingDeps{}
	r := newRig(t, func(d *lifecycle.Deps) {
		b.Store = d.Store
		d.Store, d.Gateway, d.Sealed = b, b, b
	})
	sb, err := r.Create(t.Context(), local, sandbox.CreateRequest{Template: "base", Access: binding(t, "KEY")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Pause(t.Context(), local, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"policy", "network", "restore", "start", "entry"} {
		b.fail(step)
		switch step {
		case "restore":
			r.failAt(fake.RestoreBegin, errStep)
		case "start":
			r.failAt(fake.CreateReady, errStep)
		case "entry":
			r.record.Fail(func(d audit.Draft) bool { return d.Kind == audit.SandboxResumed })
		}
		_, _, err := r.Resume(t.Context(), local, sb.ID, time.Minute)
		b.fail("")
		r.setFault(nil)
		r.record.Fail(nil)
		if err == nil {
			t.Errorf("%s fails, but the sandbox was resumed", step)
		}
		r.wantNothingLeft()
		r.wantImages(1)
		row, err := r.store.Get(t.Context(), sb.ID)
		if err != nil || row.State != sandbox.Paused || len(b.attached) > 0 {
			t.Errorf("after %s failed, the sandbox is %s, attached %v, %v; want paused and not attached", step, row.State, b.attached, err)
		}
	}
	if _, resumed, err := r.Resume(t.Context(), local, sb.ID, time.Minute); err != nil || !resumed {
		t.Errorf("last resumption: got %v, %v; want true", resumed, err)
	}
}
