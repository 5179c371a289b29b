package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// isOpen reports whether a sandbox has network access, as far as its policy allows.
func (c *hookedGateway) isOpen(id string) bool {
	a, attached := c.all()[id]
	return attached && len(a.Policy.Document().Network.Hosts) > 0
}

// P46: a sandbox whose secret was removed can neither be rolled back nor reset, and the refused
// request takes nothing from it.
func TestRefusedRollbackKeepsNetworkOpen(t *testing.T) {
	r, gateway, k, sb := newRotation(t)
	n := r.snapshot(alice, sb.ID, "")
	k.set("KEY")
	for name, do := range map[string]func() error{
		"rollback": func() error { _, err := r.Rollback(t.Context(), alice, sb.ID, n.ID); return err },
		"reset":    func() error { _, err := r.Reset(t.Context(), alice, sb.ID); return err },
	} {
		if err := do(); fault.CodeOf(err) != "secret_not_found" {
			t.Errorf("%s: got error %v, want secret_not_found", name, err)
		}
		if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Running || !gateway.isOpen(sb.ID) {
			t.Errorf("%s: the sandbox is %s, %v, and its network is open: %t", name, got.State, err, gateway.isOpen(sb.ID))
		}
	}
}

// P46: once the old instance's network attachment is cut, the new one is made even if
// the caller leaves.
func TestRollbackOutlivesCaller(t *testing.T) {
	r, gateway, _, sb := newRotation(t)
	r.state(sb.ID).Remember("x", "1")
	n := r.snapshot(alice, sb.ID, "")
	r.state(sb.ID).Remember("x", "2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.setFault(func(at fake.Step, _ string) error {
		if at == fake.ReplaceReady {
			cancel()
		}
		return nil
	})
	if _, err := r.Rollback(ctx, alice, sb.ID, n.ID); err != nil {
		t.Error(err)
	}
	if ctx.Err() == nil {
		t.Fatal("the caller was not canceled")
	}
	if r.state(sb.ID).Memory("x") != "1" || !gateway.isOpen(sb.ID) {
		t.Errorf("memory x is %q, and its network is open: %t", r.state(sb.ID).Memory("x"), gateway.isOpen(sb.ID))
	}
}

// P46: after a failed pause a sandbox's network is open again, without a secret that was removed by
// then.
func TestFailedPauseReopensNetwork(t *testing.T) {
	r, gateway, k, sb := newRotation(t)
	k.set("KEY")
	r.failAt(fake.CheckpointBegin, errors.New("broken on purpose"))
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err == nil {
		t.Fatal("the sandbox was paused")
	}
	if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Running || !gateway.isOpen(sb.ID) || gateway.value(sb.ID) != "" {
		t.Errorf("the sandbox is %s, %v, its network is open: %t, with %q", got.State, err, gateway.isOpen(sb.ID), gateway.value(sb.ID))
	}
}

// P46: a sandbox whose network cannot be opened after a failed pause is not reported as running.
// The network is opened later.
func TestNetworkIsReopenedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, gateway, _, sb := newRotation(t)
		lost := errors.New("the gateway does not answer")
		r.setFault(func(at fake.Step, _ string) error {
			if at == fake.CheckpointBegin {
				gateway.setHook(func(sandbox.Attachment) error { return lost })
				return errors.New("broken on purpose")
			}
			return nil
		})
		if _, err := r.Pause(t.Context(), alice, sb.ID, false); !errors.Is(err, lost) {
			t.Errorf("pause: got error %v", err)
		}
		r.setFault(nil)
		if row, err := r.store.Get(t.Context(), sb.ID); err != nil || row.State != sandbox.Pausing || gateway.isOpen(sb.ID) {
			t.Fatalf("the sandbox is %s, %v, and its network is open: %t", row.State, err, gateway.isOpen(sb.ID))
		}
		time.Sleep(6 * time.Second) // the maintenance loop runs
		synctest.Wait()
		if row, err := r.store.Get(t.Context(), sb.ID); err != nil || row.State != sandbox.Running || !gateway.isOpen(sb.ID) || gateway.value(sb.ID) != firstValue {
			t.Errorf("later it is %s, %v, its network is open: %t, with %q", row.State, err, gateway.isOpen(sb.ID), gateway.value(sb.ID))
		}
	})
}
