package lifecycle_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// hookedGateway is a gateway that calls a hook once, right before an update.
type hookedGateway struct {
	fakeGateway
	hookMu sync.Mutex
	hook   func(sandbox.Attachment) error
}

func (c *hookedGateway) Update(ctx context.Context, a sandbox.Attachment) error {
	c.hookMu.Lock()
	hook := c.hook
	c.hook = nil
	c.hookMu.Unlock()
	if hook != nil {
		if err := hook(a); err != nil {
			return err
		}
	}
	return c.fakeGateway.Update(ctx, a)
}

func (c *hookedGateway) setHook(hook func(sandbox.Attachment) error) {
	c.hookMu.Lock()
	c.hook = hook
	c.hookMu.Unlock()
}

// value returns the value that a sandbox's requests carry.
func (c *hookedGateway) value(id string) string {
	a := c.all()[id]
	if len(a.Secrets) == 0 {
		return ""
	}
	return a.Secrets[0].Value
}

// newRotation returns a rig with a sandbox that uses a secret.
func newRotation(t *testing.T) (*rig, *hookedGateway, *secretStore, sandbox.Sandbox) {
	t.Helper()
	k, _ := newSecretStore(t)
	k.set("KEY", firstValue)
	gateway := &hookedGateway{fakeGateway: fakeGateway{attached: map[string]sandbox.Attachment{}}}
	r := newRig(t, func(d *lifecycle.Deps) { d.Gateway, d.Sealed = gateway, k })
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Access = binding(t, "KEY") })
	return r, gateway, k, sb
}

// A rotation does not restore a policy that was replaced while it resolved the values.
func TestRotationKeepsNarrowerPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, gateway, _, sb := newRotation(t)
		set := make(chan error, 1)
		gateway.setHook(func(sandbox.Attachment) error {
			go func() {
				_, err := r.SetAccess(t.Context(), alice, sb.ID, replaceWith(sandbox.Access{Net: sandbox.NetNone}))
				set <- err
			}()
			synctest.Wait()
			return nil
		})
		if err := r.RotateSecrets(t.Context(), alice.KeyID); err != nil {
			t.Fatal(err)
		}
		if err := <-set; err != nil {
			t.Fatal(err)
		}
		row, err := r.store.Get(t.Context(), sb.ID)
		if a := gateway.all()[sb.ID]; err != nil || a.Policy.Digest() != row.PolicyDigest || gateway.isOpen(sb.ID) || len(a.Secrets) > 0 {
			t.Errorf("%v: another policy is in force than the row's, with %d secrets", err, len(a.Secrets))
		}
	})
}

// A rotation does not open a network that was closed for a pause.
func TestRotationKeepsNetworkClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, gateway, _, sb := newRotation(t)
		saved, paused := make(chan struct{}), make(chan error, 1)
		r.setFault(func(at fake.Step, _ string) error {
			if at == fake.CheckpointBegin {
				<-saved
			}
			return nil
		})
		gateway.setHook(func(sandbox.Attachment) error {
			go func() {
				_, err := r.Pause(t.Context(), alice, sb.ID, false)
				paused <- err
			}()
			synctest.Wait()
			return nil
		})
		if err := r.RotateSecrets(t.Context(), alice.KeyID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if row, err := r.store.Get(t.Context(), sb.ID); err != nil || row.State != sandbox.Pausing {
			t.Fatalf("the sandbox is %s, %v", row.State, err)
		}
		if a := gateway.all()[sb.ID]; gateway.isOpen(sb.ID) || len(a.Secrets) > 0 {
			t.Error("the network is open while the sandbox is saved")
		}
		close(saved)
		if err := <-paused; err != nil {
			t.Fatal(err)
		}
	})
}

// A sandbox that had read the old value, and does not run yet when the new one is set, has the new
// one once the rotation is answered.
func TestRotationReachesStartingSandboxes(t *testing.T) {
	for name, tc := range map[string]struct {
		at    fake.Step
		start func(r *rig, id string) (string, error)
	}{
		"create": {fake.CreateReady, func(r *rig, _ string) (string, error) {
			sb, err := r.Create(r.t.Context(), alice, sandbox.CreateRequest{Template: "base", Access: binding(r.t, "KEY")})
			return sb.ID, err
		}},
		"resume": {fake.RestoreBegin, func(r *rig, id string) (string, error) {
			if _, err := r.Pause(r.t.Context(), alice, id, false); err != nil {
				return id, err
			}
			_, _, err := r.Resume(r.t.Context(), alice, id, 0)
			return id, err
		}},
		"fork": {fake.RestoreBegin, func(r *rig, id string) (string, error) {
			forks, err := r.Fork(r.t.Context(), alice, id, sandbox.ForkRequest{Count: 1})
			if err != nil {
				return "", err
			}
			return forks[0].Sandbox.ID, forks[0].Err
		}},
		"rollback": {fake.ReplaceReady, func(r *rig, id string) (string, error) {
			n := r.snapshot(alice, id, "")
			_, err := r.Rollback(r.t.Context(), alice, id, n.ID)
			return id, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, gateway, k, sb := newRotation(t)
				var once sync.Once
				rotated := make(chan error, 1)
				r.setFault(func(at fake.Step, _ string) error {
					if at == tc.at {
						once.Do(func() {
							k.set("KEY", secondValue, firstValue)
							go func() { rotated <- r.RotateSecrets(t.Context(), alice.KeyID) }()
							synctest.Wait()
						})
					}
					return nil
				})
				id, err := tc.start(r, sb.ID)
				if err != nil {
					t.Fatal(err)
				}
				if err := <-rotated; err != nil {
					t.Fatal(err)
				}
				if got := gateway.value(id); got != secondValue {
					t.Errorf("the sandbox has the value %q, want the new one", got)
				}
			})
		})
	}
}

// TestRotationReachesAcquiredSandbox checks the same for a warm sandbox that is being handed out.
func TestRotationReachesAcquiredSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _ := newSecretStore(t)
		k.set("KEY", firstValue)
		p := newPoolRig(t, func(d *lifecycle.Deps) { d.Sealed = k })
		p.start(opened)
		rotated := make(chan error, 1)
		p.setRefuse(func(guest.Config) (int, string) {
			k.set("KEY", secondValue, firstValue)
			go func() { rotated <- p.RotateSecrets(t.Context(), alice.KeyID) }()
			synctest.Wait()
			return 0, ""
		})
		sb, err := p.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Access: binding(t, "KEY")})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, claimed := p.configs(sb.ID); !claimed {
			t.Fatal("the sandbox was not acquired from the pool")
		}
		if err := <-rotated; err != nil {
			t.Fatal(err)
		}
		if a := p.fakeGateway.all()[sb.ID]; a.Secrets[0].Value != secondValue {
			t.Errorf("the sandbox has the value %q, want the new one", a.Secrets[0].Value)
		}
	})
}

// A rotation returns in bounded time, and lists the sandboxes that it has not
// reached. These get the value later.
func TestRotationHasTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, gateway, k, sb := newRotation(t)
		if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		restore, resumed := make(chan struct{}), make(chan error, 1)
		r.setFault(func(at fake.Step, _ string) error {
			if at == fake.RestoreBegin {
				<-restore
			}
			return nil
		})
		go func() {
			_, _, err := r.Resume(t.Context(), alice, sb.ID, 0)
			resumed <- err
		}()
		synctest.Wait()
		k.set("KEY", secondValue, firstValue)
		started := time.Now()
		wantKind(t, r.RotateSecrets(t.Context(), alice.KeyID), fault.Timeout, "secret_not_everywhere")
		if took := time.Since(started); took > time.Minute {
			t.Errorf("the rotation returned after %s", took)
		}
		close(restore)
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := gateway.value(sb.ID); got != secondValue {
			t.Errorf("the sandbox has the value %q, want the new one", got)
		}
	})
}

// A sandbox that another process is starting is found by its row.
func TestRotationWaitsForOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, gateway, k, sb := newRotation(t)
		other := sandbox.Process{PID: 5, Start: "alive"}
		second := &rig{t: t, dir: r.dir, ends: map[string]time.Time{}}
		second.open(func(d *lifecycle.Deps) {
			d.Gateway, d.Sealed, d.Process = gateway, k, other
			d.Alive = func(sandbox.Process) bool { return true }
		})
		defer second.close()
		if moved, err := r.store.Move(t.Context(), sb.ID, sandbox.Move{
			From: []sandbox.State{sandbox.Running}, To: sandbox.Resuming, By: sandbox.Process{PID: 6, Start: "alive"},
		}); err != nil || !moved {
			t.Fatal(moved, err)
		}
		k.set("KEY", secondValue, firstValue)
		rotated := make(chan error, 1)
		go func() { rotated <- second.RotateSecrets(t.Context(), alice.KeyID) }()
		time.Sleep(time.Second)
		if got := gateway.value(sb.ID); got != firstValue {
			t.Errorf("the sandbox got %q while another process changes it", got)
		}
		if _, err := r.store.Move(t.Context(), sb.ID, sandbox.Move{From: []sandbox.State{sandbox.Resuming}, To: sandbox.Running}); err != nil {
			t.Fatal(err)
		}
		if err := <-rotated; err != nil {
			t.Error(err)
		}
		if got := gateway.value(sb.ID); got != secondValue {
			t.Errorf("the sandbox has the value %q, want the new one", got)
		}
	})
}

// A sandbox that has lost its attachment does not make a rotation fail.
func TestRotationSkipsLostAttachments(t *testing.T) {
	r, gateway, k, sb := newRotation(t)
	gateway.setHook(func(sandbox.Attachment) error { return fault.New(fault.NotFound, "network_not_attached", "it is gone") })
	k.set("KEY", secondValue, firstValue)
	if err := r.RotateSecrets(t.Context(), alice.KeyID); err != nil {
		t.Error(err)
	}
	// Any other failure does: the old value may still work.
	gateway.setHook(func(sandbox.Attachment) error { return fault.New(fault.NotFound, "another", "it is gone") })
	if err := r.RotateSecrets(t.Context(), alice.KeyID); fault.CodeOf(err) != "another" {
		t.Error(err)
	}
	if err := r.RotateSecrets(t.Context(), alice.KeyID); err != nil || gateway.value(sb.ID) != secondValue {
		t.Errorf("rotation without a fault: %v, value %q", err, gateway.value(sb.ID))
	}
}
