package lifecycle_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/state/workspace"
)

// otherProcess is another process with the same state.
func (r *rig) otherProcess(t *testing.T, options ...option) *rig {
	t.Helper()
	other := &rig{t: t, dir: r.dir, ends: make(map[string]time.Time)}
	other.open(append(options, func(d *lifecycle.Deps) { d.Process = sandbox.Process{PID: 1 << 29, Start: "beside"} })...)
	t.Cleanup(other.close)
	return other
}

// TestOtherProcessChangesState lets another process pause, resume and roll back a sandbox. This
// process must not mistake the end of an instance for the end of the sandbox, and must end its
// streams into the old instance.
func TestOtherProcessChangesState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(d *lifecycle.Deps) { d.Alive = func(sandbox.Process) bool { return true } })
		other := r.otherProcess(t)
		ctx := t.Context()
		sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout = time.Hour })
		n := r.snapshot(alice, sb.ID, "")
		for name, change := range map[string]func() error{
			"rollback": func() error { _, err := other.Rollback(ctx, alice, sb.ID, n.ID); return err },
			"pause and resume": func() error {
				if _, err := other.Pause(ctx, alice, sb.ID, false); err != nil {
					return err
				}
				_, _, err := other.Resume(ctx, alice, sb.ID, time.Hour)
				return err
			},
		} {
			gone := r.Gone(sb.ID)
			if err := change(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			select {
			case <-gone:
			default:
				t.Errorf("%s: streams into the old instance are not cut", name)
			}
			if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.State != sandbox.Running {
				t.Errorf("%s: the sandbox is %s (%s), %v", name, got.State, got.Reason, err)
			}
			if _, ok := r.Live(sb.ID); !ok || r.body(sb.ID) != sb.ID {
				t.Errorf("%s: this process cannot reach the sandbox", name)
			}
		}
		// Both processes see the actual end.
		r.engine.Lose(sb.ID)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.State != sandbox.Stopped {
			t.Errorf("lost sandbox is %s, %v", got.State, err)
		}
	})
}

// Two processes that resume at once make one instance.
func TestTwoProcessesResumeOnce(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Alive = func(sandbox.Process) bool { return true } })
	other := r.otherProcess(t)
	sb := r.create(alice)
	for range 20 {
		if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for _, s := range []*rig{r, other} {
			group.Go(func() {
				got, _, err := s.Resume(t.Context(), alice, sb.ID, 0)
				// The slower process gets a conflict, or finds the sandbox running.
				if err != nil && fault.CodeOf(err) != "sandbox_changed" || err == nil && got.State != sandbox.Running {
					t.Errorf("concurrent resumption: got %s, %v", got.State, err)
				}
			})
		}
		group.Wait()
		if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil || r.body(sb.ID) != sb.ID {
			t.Fatal(err)
		}
		r.wantImages(0)
	}
}

// A removal has priority over everything in progress.
func TestRemovalCancelsOperations(t *testing.T) {
	for name, tc := range map[string]struct {
		at fake.Step
		do func(*rig, string) error
	}{
		"pause": {fake.CheckpointSaved, func(r *rig, id string) error { _, err := r.Pause(r.t.Context(), alice, id, false); return err }},
		"snapshot": {fake.CheckpointSaved, func(r *rig, id string) error {
			_, err := r.Snapshot(r.t.Context(), alice, id, sandbox.SnapshotRequest{})
			return err
		}},
		"reset": {fake.ReplaceReady, func(r *rig, id string) error { _, err := r.Reset(r.t.Context(), alice, id); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				sb := r.create(alice)
				reached := make(chan struct{})
				release := make(chan struct{})
				r.setFault(func(at fake.Step, _ string) error {
					if at == tc.at {
						close(reached)
						<-release
					}
					return nil
				})
				var group sync.WaitGroup
				group.Go(func() {
					if err := tc.do(r, sb.ID); fault.CodeOf(err) != sandbox.CodeRemoved {
						t.Errorf("the sandbox was removed, but the request returned error %v", err)
					}
				})
				<-reached
				group.Go(func() {
					if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait() // the removal has canceled the request, and waits for it
				r.setFault(nil)
				close(release)
				group.Wait()
				r.wantImages(0)
				r.wantNothingLeft()
			})
		})
	}
}

// A removal does not wait for operations that wait for their turn.
func TestRemovalSkipsQueuedOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sb := r.create(alice)
		started, release := 0, make(chan struct{})
		r.setFault(func(at fake.Step, _ string) error {
			if at == fake.CheckpointBegin {
				started++ // the lock of the ID is held
				<-release
			}
			return nil
		})
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() {
				_, err := r.Snapshot(r.t.Context(), alice, sb.ID, sandbox.SnapshotRequest{})
				if fault.CodeOf(err) != sandbox.CodeRemoved {
					t.Errorf("the sandbox was removed, but a snapshot returned error %v", err)
				}
			})
		}
		synctest.Wait()
		group.Go(func() {
			if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(release)
		group.Wait()
		if started != 1 {
			t.Errorf("%d of 5 snapshots were begun, which the removal waited for", started)
		}
		r.wantImages(0)
		r.wantNothingLeft()
	})
}

// A resumption for some time lasts that time, however long the resumption took.
func TestSlowResumptionKeepsLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sb := r.create(alice)
		if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		r.setFault(func(at fake.Step, _ string) error {
			if at == fake.RestoreBegin {
				time.Sleep(20 * time.Second)
			}
			return nil
		})
		got, _, err := r.Resume(t.Context(), alice, sb.ID, 15*time.Second)
		if left := time.Until(got.EndAt); err != nil || left < 14*time.Second || left > 15*time.Second {
			t.Errorf("resume: %v; %v of 15 s are left", err, left)
		}
		if row, err := r.Get(t.Context(), alice, sb.ID); err != nil || !row.EndAt.Equal(got.EndAt) {
			t.Errorf("its row ends at %v, %v", row.EndAt, err)
		}
	})
}

// A sandbox that was to be paused while no process ran is paused by the next one.
func TestOverdueSandboxIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout, c.OnEnd.Pause = time.Minute, true })
		r.state(sb.ID).Remember("x", "1")
		r.close()
		time.Sleep(time.Hour)
		r.open()
		r.reconcile()
		time.Sleep(time.Second)
		synctest.Wait()
		if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Paused {
			t.Errorf("the sandbox is %s (%s), %v", got.State, got.Reason, err)
		}
		if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil || r.state(sb.ID).Memory("x") != "1" {
			t.Error(err)
		}
	})
}

// A sandbox whose memory could not be restored is paused in time with its files.
func TestChangedProgramsPauseFilesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var revision atomic.Value
		revision.Store("1")
		r := newRig(t, func(d *lifecycle.Deps) { d.Templates = changingTemplates{&revision} })
		sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout, c.OnEnd.Pause = time.Minute, true })
		r.state(sb.ID).Write("f", "one")
		revision.Store("2")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Paused || !got.FilesOnly {
			t.Errorf("the sandbox is %s (%s), files only %t, %v", got.State, got.Reason, got.FilesOnly, err)
		}
		if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil || r.state(sb.ID).File("f") != "one" {
			t.Error(err)
		}
	})
}

// P26: a copy's secrets are resolved for it and never copied: values that came with the sandbox are
// sealed again under the copy's own name, and are removed with it.
func TestCopiesGetOwnSecrets(t *testing.T) {
	gateway, secrets := &inputRecorder{}, &ownValueStore{values: map[string]map[string]map[string]config.Secret{}}
	r := newRig(t, func(d *lifecycle.Deps) { d.Gateway, d.Sealed = gateway, secrets })
	ctx := t.Context()
	sb, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base", Access: accessWithHeader(t, "canary-one")})
	if err != nil {
		t.Fatal(err)
	}
	forks, err := r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	other := forks[0].Sandbox
	if gateway.last.Sandbox != other.ID || len(gateway.last.Secrets) != 1 || gateway.last.Secrets[0].Value != "canary-one" {
		t.Errorf("attached: got %+v, want the copy with its value", gateway.last)
	}
	if other.Access.Own == sb.Access.Own || other.Access.Own == "" || other.Access.Values != nil {
		t.Errorf("the copy's values are named %q, and the source's %q", other.Access.Own, sb.Access.Own)
	}
	if err := r.Remove(ctx, alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.RotateSecrets(ctx, alice.KeyID); err != nil || gateway.last.Sandbox != other.ID || len(gateway.last.Secrets) != 1 {
		t.Errorf("rotation without the source: %v, %+v", err, gateway.last)
	}
	// Neither a snapshot nor a sandbox created from the snapshot has the values.
	n := r.snapshot(alice, other.ID, "")
	row, err := r.store.GetSnapshot(ctx, n.ID)
	if err != nil || row.Access.Own != "" {
		t.Errorf("the snapshot names %q, %v", row.Access.Own, err)
	}
	if _, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: n.ID}); err != nil || secrets.count() != 1 {
		t.Errorf("creation from the snapshot: %v; %d values are stored, want 1", err, secrets.count())
	}
}

// Nothing leaves a sandbox while it is being saved, because its later actions are not part of the
// saved state.
func TestNetworkIsClosedDuringPause(t *testing.T) {
	gateway := &inputRecorder{}
	r := newRig(t, func(d *lifecycle.Deps) { d.Gateway = gateway })
	ctx := t.Context()
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Access = sandbox.Access{Allow: []string{"a.test"}} })
	reachable := func() bool {
		gateway.mu.Lock()
		defer gateway.mu.Unlock()
		return gateway.last.Policy.Reachable("a.test")
	}
	if !reachable() {
		t.Fatal("the host is not reachable before the pause")
	}
	closed := false
	r.setFault(func(at fake.Step, _ string) error {
		if at == fake.CheckpointBegin {
			closed = !reachable()
			return fault.New(fault.Exhausted, "disk_full", "full")
		}
		return nil
	})
	_, err := r.Pause(ctx, alice, sb.ID, false)
	wantKind(t, err, fault.Exhausted, "disk_full")
	if !closed || !reachable() {
		t.Errorf("closed during the save: %t, reachable after its failure: %t", closed, reachable())
	}
	r.setFault(nil)
	if _, err := r.Pause(ctx, alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Resume(ctx, alice, sb.ID, 0); err != nil || !reachable() {
		t.Errorf("resumed: %v, open: %t", err, reachable())
	}
}

// unresponsiveGateway is a gateway that does not answer the first change until the caller gives up.
type unresponsiveGateway struct {
	inputRecorder
	once  sync.Once
	asked chan struct{}
}

func (w *unresponsiveGateway) Update(ctx context.Context, _ sandbox.Attachment) (err error) {
	w.once.Do(func() {
		close(w.asked)
		<-ctx.Done()
		err = ctx.Err()
	})
	return err
}

// An operation that a removal interrupts returns an error about the removal, and not about a
// failure.
func TestRemovalWhileNetworkIsClosing(t *testing.T) {
	gateway := &unresponsiveGateway{asked: make(chan struct{})}
	r := newRig(t, func(d *lifecycle.Deps) { d.Gateway = gateway })
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Access = sandbox.Access{Allow: []string{"a.test"}} })
	removed := make(chan error, 1)
	go func() {
		<-gateway.asked
		removed <- r.Remove(t.Context(), alice, sb.ID)
	}()
	_, err := r.Pause(t.Context(), alice, sb.ID, false)
	wantKind(t, err, fault.Conflict, sandbox.CodeRemoved)
	if err := <-removed; err != nil {
		t.Error(err)
	}
	r.wantImages(0)
	r.wantNothingLeft()
}

// TestPauseWithoutNetworkAttachment checks that a sandbox can be paused although the gateway
// process has died and all attachments are lost. A resumed sandbox gets a new attachment.
func TestPauseWithoutNetworkAttachment(t *testing.T) {
	for step, filesOnly := range map[fake.Step]bool{fake.CheckpointBegin: false, fake.ArchiveBegin: true} {
		t.Run(string(step), func(t *testing.T) {
			gateway := &inputRecorder{}
			r := newRig(t, func(d *lifecycle.Deps) { d.Gateway = gateway })
			ctx := t.Context()
			sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Access = sandbox.Access{Allow: []string{"a.test"}} })
			gateway.setFail(fault.New(fault.Conflict, egress.CodeNotAttached, "gone"))
			r.failAt(step, fault.New(fault.Exhausted, "disk_full", "full"))
			_, err := r.Pause(ctx, alice, sb.ID, filesOnly)
			wantKind(t, err, fault.Exhausted, "disk_full")
			if r.body(sb.ID) != sb.ID {
				t.Error("the sandbox does not continue")
			}
			r.setFault(nil)
			if _, err := r.Pause(ctx, alice, sb.ID, filesOnly); err != nil {
				t.Fatal(err)
			}
			gateway.setFail(nil)
			if _, _, err := r.Resume(ctx, alice, sb.ID, 0); err != nil || r.body(sb.ID) != sb.ID {
				t.Error(err)
			}
			// Other failures do not prove that nothing can get out.
			gateway.setFail(fault.New(fault.Unavailable, "busy", "busy"))
			_, err = r.Pause(ctx, alice, sb.ID, filesOnly)
			wantKind(t, err, fault.Unavailable, "busy")
		})
	}
}

// A copy of a workspace exists as long as anything uses it: the sandbox for which it was made, its
// copies, and snapshots of any of them.
func TestWorkspaceCopyLivesWhileUsed(t *testing.T) {
	copies := workspace.New(t.TempDir() + "/copies")
	r := newRig(t, func(d *lifecycle.Deps) { d.Copies = copies })
	ctx := t.Context()
	source := t.TempDir()
	countCopies := func() int {
		t.Helper()
		list, err := copies.List()
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	sb := r.create(local, func(c *sandbox.CreateRequest) {
		c.Workspace = source
		c.Access.Documents = []policy.Document{{Policy: "v1", Name: "copied", Filesystem: policy.Filesystem{Workspace: policy.Workspace{Mode: "copy"}}}}
	})
	if countCopies() != 1 {
		t.Fatal("no copy was made")
	}
	forks, err := r.Fork(ctx, local, sb.ID, sandbox.ForkRequest{Count: 1})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	other := forks[0].Sandbox
	n := r.snapshot(local, other.ID, "")
	for _, step := range []struct {
		do   func() error
		want int
	}{
		{func() error { return r.Remove(ctx, local, sb.ID) }, 1},
		{func() error { _, err := r.Pause(ctx, local, other.ID, false); return err }, 1},
		{func() error { return incompleteError(r.Reconcile(ctx)) }, 1},
		{func() error { _, _, err := r.Resume(ctx, local, other.ID, 0); return err }, 1},
		{func() error { return r.Remove(ctx, local, other.ID) }, 1},
		{func() error { _, err := r.Prune(ctx, local); return err }, 1},
		{func() error { return r.RemoveSnapshot(ctx, local, n.ID) }, 0},
	} {
		if err := step.do(); err != nil {
			t.Error(err)
		}
		if got := countCopies(); got != step.want {
			t.Errorf("%d copies, want %d", got, step.want)
		}
	}
}
