package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// changingTemplates is a template store with a template whose programs change.
type changingTemplates struct{ revision *atomic.Value }

func (s changingTemplates) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	t, err := templates{}.Resolve(ctx, ref)
	t.Revision, _ = s.revision.Load().(string)
	return t, err
}

func TestRollbackAndReset(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Name = "web" })
	r.state(sb.ID).Remember("x", "1")
	first := r.snapshot(alice, sb.ID, "first")
	r.state(sb.ID).Remember("x", "2")
	gone := r.Gone(sb.ID)
	back, err := r.Rollback(ctx, alice, "web", "first")
	if err != nil || back.ID != sb.ID || back.AccessToken != sb.AccessToken || !back.EndAt.Equal(sb.EndAt) || back.At != first.ID || back.State != sandbox.Running {
		t.Fatalf("rollback: got %+v, %v", back, err)
	}
	select {
	case <-gone:
	default:
		t.Error("streams into the old instance are not cut")
	}
	if c := r.booted(); c.Renew != guest.RolledBack || c.AccessToken != sb.AccessToken {
		t.Errorf("the guest was given %+v", c)
	}
	if r.state(sb.ID).Memory("x") != "1" || r.body(sb.ID) != sb.ID {
		t.Errorf("memory after the rollback: got %q, want 1", r.state(sb.ID).Memory("x"))
	}
	// The end of the old instance is not the end of the sandbox.
	if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.State != sandbox.Running {
		t.Errorf("the sandbox is %s (%s), %v", got.State, got.Reason, err)
	}
	back, err = r.Reset(ctx, alice, sb.ID)
	if err != nil || back.At != "" || r.state(sb.ID).Memory("x") != "" {
		t.Errorf("reset: %+v, %v", back, err)
	}
	if c := r.booted(); c.Renew != "" || c.AccessToken != sb.AccessToken {
		t.Errorf("the guest was given %+v", c)
	}

	made := r.create(alice, from("first"))
	r.state(made.ID).Remember("x", "3")
	if back, err = r.Reset(ctx, alice, made.ID); err != nil || r.state(made.ID).Memory("x") != "1" || back.At != first.ID {
		t.Errorf("reset to the origin: %+v, %v", back, err)
	}
	// The sandbox of the snapshot may be running, and uses the names in it.
	if c := r.booted(); c.Renew != guest.Copied || c.AccessToken != made.AccessToken {
		t.Errorf("the guest was given %+v", c)
	}
	if err := r.RemoveSnapshot(ctx, alice, "first"); err != nil {
		t.Fatal(err)
	}
	_, err = r.Reset(ctx, alice, made.ID)
	wantKind(t, err, fault.Conflict, "origin_gone")
	if r.body(made.ID) != made.ID {
		t.Error("the sandbox does not continue")
	}
	r.wantImages(0)
}

// A paused sandbox that is rolled back runs, and its paused state is removed.
func TestRollbackOfPausedSandbox(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb := r.create(alice)
	r.state(sb.ID).Remember("x", "1")
	n := r.snapshot(alice, sb.ID, "")
	r.state(sb.ID).Remember("x", "2")
	if _, err := r.Pause(ctx, alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	r.failAt(fake.RestoreBegin, errors.New("broken on purpose"))
	if _, err := r.Rollback(ctx, alice, sb.ID, n.ID); err == nil {
		t.Error("the rollback succeeds although the restoration fails")
	}
	r.setFault(nil)
	r.wantImages(2)
	if back, err := r.Rollback(ctx, alice, sb.ID, n.ID); err != nil || back.State != sandbox.Running || back.At != n.ID || r.state(sb.ID).Memory("x") != "1" {
		t.Errorf("rollback of a paused sandbox: got %+v, %v", back, err)
	}
	r.wantImages(1)
}

func TestFailedRollback(t *testing.T) {
	broken := errors.New("broken on purpose")
	for _, step := range []fake.Step{fake.ReplaceBegin, fake.ReplaceReady, fake.ReplaceStop} {
		t.Run(string(step), func(t *testing.T) {
			r := newRig(t)
			ctx := t.Context()
			sb := r.create(alice)
			n := r.snapshot(alice, sb.ID, "")
			r.state(sb.ID).Remember("x", "2")
			r.failAt(step, broken)
			_, err := r.Rollback(ctx, alice, sb.ID, n.ID)
			if !errors.Is(err, broken) {
				t.Errorf("got error %v, want the injected one", err)
			}
			r.setFault(nil)
			got, _ := r.Get(ctx, alice, sb.ID)
			if step == fake.ReplaceStop {
				if got.State != sandbox.Stopped || got.Reason != sandbox.ReasonCrashed || fault.CodeOf(err) != "replace_failed" {
					t.Errorf("the sandbox is %s (%s), and the error is %v", got.State, got.Reason, err)
				}
				r.wantNothingLeft()
				return
			}
			if got.State != sandbox.Running || r.state(sb.ID).Memory("x") != "2" || r.body(sb.ID) != sb.ID {
				t.Errorf("the sandbox is %s (%s)", got.State, got.Reason)
			}
			if _, err := r.Rollback(ctx, alice, sb.ID, n.ID); err != nil || r.state(sb.ID).Memory("x") != "" {
				t.Errorf("the next attempt: %v", err)
			}
			r.wantImages(1)
		})
	}
}

func TestRollbackRejectsOtherInstance(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	one := r.create(alice)
	two := r.create(alice, func(c *sandbox.CreateRequest) { c.Limits.PIDs = 99 })
	n := r.snapshot(alice, one.ID, "")
	_, err := r.Rollback(ctx, alice, two.ID, n.ID)
	wantKind(t, err, fault.Invalid, "snapshot_other_machine")
	if _, err := r.Rollback(ctx, alice, r.create(alice).ID, n.ID); err != nil {
		t.Errorf("rollback of another sandbox of the same kind: %v", err)
	}
}

func TestFork(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Settings.MaxLive = 5 })
	ctx := t.Context()
	sb := r.create(alice, func(c *sandbox.CreateRequest) {
		c.Name, c.PrivatePorts, c.Metadata, c.Env = "web", true, map[string]string{"a": "b"}, map[string]string{"C": "d"}
	})
	r.state(sb.ID).Remember("x", "1")
	forks, err := r.Fork(ctx, alice, "web", sandbox.ForkRequest{Count: 6})
	if err != nil || len(forks) != 6 {
		t.Fatalf("fork: got %d copies, %v; want 6", len(forks), err)
	}
	seen := map[string]bool{sb.ID: true, sb.AccessToken: true, sb.TrafficToken: true}
	copies := 0
	for _, f := range forks {
		if f.Err != nil {
			wantKind(t, f.Err, fault.Exhausted, "too_many_sandboxes")
			continue
		}
		copies++
		c := f.Sandbox
		for _, value := range []string{c.ID, c.AccessToken, c.TrafficToken} {
			if value == "" || seen[value] {
				t.Errorf("%q is empty, or also the value of another sandbox", value)
			}
			seen[value] = true
		}
		if c.Parent != sb.ID || c.Name != "" || c.Owner != alice.KeyID || c.Metadata["a"] != "b" || c.Env["C"] != "d" || r.state(c.ID).Memory("x") != "1" || r.body(c.ID) != c.ID {
			t.Errorf("copy: got %+v", c)
		}
	}
	if copies != 4 {
		t.Errorf("%d copies, want 4", copies)
	}
	if r.state(sb.ID).Memory("x") != "1" || r.body(sb.ID) != sb.ID {
		t.Error("the source does not continue")
	}
	r.wantImages(0)
	for _, n := range []int{0, -1, 101} {
		_, err := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: n})
		wantKind(t, err, fault.Invalid, "count_invalid")
	}
	_, err = r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1, Ephemeral: true})
	wantKind(t, err, fault.Denied, "local_only")
	_, err = r.Fork(ctx, bob, sb.ID, sandbox.ForkRequest{Count: 1})
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
}

// A copy that fails at any step leaves nothing, and the others are made.
func TestFailedCopyLeavesNothing(t *testing.T) {
	broken := errors.New("broken on purpose")
	for _, step := range []fake.Step{fake.RestoreBegin, fake.CreateDir, fake.CreateServe, fake.CreateReady} {
		t.Run(string(step), func(t *testing.T) {
			r := newRig(t)
			sb := r.create(alice)
			failed := false
			r.setFault(func(at fake.Step, _ string) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				if at == step && !failed {
					failed = true
					return broken
				}
				return nil
			})
			forks, err := r.Fork(t.Context(), alice, sb.ID, sandbox.ForkRequest{Count: 4})
			errs := 0
			for _, f := range forks {
				if f.Err != nil {
					errs++
				} else if err := r.Remove(t.Context(), alice, f.Sandbox.ID); err != nil {
					t.Error(err)
				}
			}
			if err != nil || errs != 1 {
				t.Errorf("fork: got %d failed copies, %v; want 1", errs, err)
			}
			if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
				t.Error(err)
			}
			r.wantImages(0)
			r.wantNothingLeft()
		})
	}
}

// If the caller goes away, finished copies stay, and nothing of the others does.
func TestCanceledForkLeavesNothing(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	ctx, cancel := context.WithCancel(t.Context())
	r.setFault(func(at fake.Step, _ string) error {
		if at == fake.CreateServe {
			cancel()
		}
		return nil
	})
	forks, err := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forks {
		if f.Err == nil {
			t.Errorf("copy %s was made after the caller was canceled", f.Sandbox.ID)
		} else if fault.KindOf(f.Err) != fault.Canceled {
			t.Errorf("got error %v, want Canceled", f.Err)
		}
	}
	r.setFault(nil)
	if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
		t.Error(err)
	}
	r.wantImages(0)
	r.wantNothingLeft()
}
