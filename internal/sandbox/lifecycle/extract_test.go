package lifecycle_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestResumeFiles(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Name, c.Timeout = "web", 7*time.Minute })
	r.state(sb.ID).Remember("x", "1")
	r.state(sb.ID).Write("f", "one")
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.ResumeFiles(t.Context(), bob, sb.ID, 0)
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
	got, resumed, err := r.ResumeFiles(t.Context(), alice, "web", 0)
	if err != nil || !resumed || got.State != sandbox.Running || got.ID != sb.ID || got.AccessToken != sb.AccessToken {
		t.Fatalf("ResumeFiles: got %+v, %t, %v", got, resumed, err)
	}
	if left := time.Until(got.EndAt); left > 7*time.Minute || left < 6*time.Minute {
		t.Errorf("ends in %v", left)
	}
	if s := r.state(sb.ID); s.Memory("x") != "" || s.File("f") != "one" {
		t.Errorf("memory %q, file %q", s.Memory("x"), s.File("f"))
	}
	if c := r.booted(); !c.Archive || c.Renew != guest.Resumed {
		t.Errorf("the guest was given %+v", c)
	}
	r.wantImages(0)

	// A running sandbox stays as it is, except for a later end.
	r.state(sb.ID).Remember("x", "2")
	again, resumed, err := r.ResumeFiles(t.Context(), alice, sb.ID, time.Hour)
	if err != nil || resumed || time.Until(again.EndAt) < 59*time.Minute || r.state(sb.ID).Memory("x") != "2" {
		t.Errorf("resumption of a running sandbox: %+v, %t, %v", again, resumed, err)
	}
	// If no memory was saved, there is none to omit.
	if _, err := r.Pause(t.Context(), alice, sb.ID, true); err != nil {
		t.Fatal(err)
	}
	if _, resumed, err := r.ResumeFiles(t.Context(), alice, sb.ID, 0); err != nil || !resumed || r.state(sb.ID).File("f") != "one" {
		t.Errorf("files only: %t, %v", resumed, err)
	}
	r.wantImages(0)
}

// TestFailedResumeFilesLeavesPaused checks that after any failure the sandbox is paused with its
// memory as before.
func TestFailedResumeFilesLeavesPaused(t *testing.T) {
	checkFailedResume(t, (*rig).ResumeFiles, fake.ExtractBegin, fake.ExtractSaved, fake.CreateDir, fake.CreateServe, fake.CreateReady)
}

// removalWaits reports whether a removal has canceled the running operation and waits for its end.
func removalWaits() bool {
	stacks := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "(*Service).remove(") && strings.Contains(stack, ".acquire(") {
			return true
		}
	}
	return false
}

// TestResumeFilesIsCanceled checks that a canceled caller and a removal end the extraction of files
// at once.
func TestResumeFilesIsCanceled(t *testing.T) {
	for name, end := range map[string]func(r *rig, id string, cancel func()) error{
		"caller": func(_ *rig, _ string, cancel func()) error { cancel(); return nil },
		"remove": func(r *rig, id string, _ func()) error { return r.Remove(context.Background(), alice, id) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sb := r.create(alice)
			if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			started := make(chan struct{})
			block := make(chan struct{})
			r.setFault(func(at fake.Step, _ string) error {
				if at == fake.ExtractBegin {
					close(started)
					<-block
				}
				return nil
			})
			done := make(chan error, 1)
			go func() { _, _, err := r.ResumeFiles(ctx, alice, sb.ID, 0); done <- err }()
			<-started
			if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Resuming {
				t.Errorf("during the resumption the sandbox is %s, %v", got.State, err)
			}
			ended := make(chan error, 1)
			go func() { ended <- end(r, sb.ID, cancel) }()
			if name == "remove" {
				hosttest.Eventually(t, "the removal waits for its turn", removalWaits)
			} else if err := <-ended; err != nil {
				t.Error(err)
			}
			close(block)
			if err := <-done; err == nil {
				t.Error("the resumption was not canceled")
			}
			if name == "remove" {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			r.setFault(nil)
			want := 1
			if name == "remove" {
				want = 0
			}
			r.wantImages(want)
			if list, err := r.engine.List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("instances remain: %v, %v", list, err)
			}
		})
	}
}

// Changed programs of the host make a sandbox's memory unusable, but not its files. After it boots
// with the new programs, its memory can be saved again.
func TestResumeFilesWithChangedPrograms(t *testing.T) {
	r := newRig(t)
	var revision atomic.Value
	revision.Store("1")
	r.close()
	r.open(func(d *lifecycle.Deps) { d.Templates = changingTemplates{&revision} })
	paused, reset := r.create(alice), r.create(alice)
	r.state(paused.ID).Write("f", "one")
	if _, err := r.Pause(t.Context(), alice, paused.ID, false); err != nil {
		t.Fatal(err)
	}
	revision.Store("2")
	_, _, err := r.Resume(t.Context(), alice, paused.ID, 0)
	wantKind(t, err, fault.Conflict, "snapshot_programs_changed")
	if _, _, err := r.ResumeFiles(t.Context(), alice, paused.ID, 0); err != nil {
		t.Fatal(err)
	}
	if got := r.state(paused.ID).File("f"); got != "one" {
		t.Errorf("the file holds %q", got)
	}
	_, err = r.Pause(t.Context(), alice, reset.ID, false)
	wantKind(t, err, fault.Conflict, "snapshot_programs_changed")
	if _, err := r.Reset(t.Context(), alice, reset.ID); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string]string{"resumed with its files": paused.ID, "reset": reset.ID} {
		if _, err := r.Pause(t.Context(), alice, id, false); err != nil {
			t.Errorf("pause of the sandbox that was %s: %v", what, err)
		} else if _, _, err := r.Resume(t.Context(), alice, id, 0); err != nil {
			t.Errorf("resumption of the sandbox that was %s: %v", what, err)
		}
	}
}

// A guest restored from memory that an earlier version saved is asked only for checks that it
// knows. A guest that boots with the files is of this version.
func TestOlderGuestGetsKnownChecks(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Engines = fake.Registry(walledFake{d.Engines.Default().(*fake.Engine)}) })
	sb := r.create(alice)
	row, err := r.store.Get(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	if asked := r.booted().Checks.PIDs; asked == 0 || row.Base.Knows == 0 {
		t.Fatalf("control: asked for %d processes, and the guest knows %d", asked, row.Base.Knows)
	}
	row.Base.Knows = 0
	running := []sandbox.State{sandbox.Running}
	if moved, err := r.store.Move(t.Context(), sb.ID, sandbox.Move{From: running, To: sandbox.Running, Change: &sandbox.Change{Base: &row.Base}}); err != nil || !moved {
		t.Fatal(moved, err)
	}
	for _, tc := range []struct {
		resume func(*audited.Service, context.Context, sandbox.Principal, string, time.Duration) (sandbox.Sandbox, bool, error)
		asked  bool
	}{{(*audited.Service).Resume, false}, {(*audited.Service).ResumeFiles, true}, {(*audited.Service).Resume, true}} {
		if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		if _, _, err := tc.resume(r.Service, t.Context(), alice, sb.ID, 0); err != nil {
			t.Fatal(err)
		}
		if asked := r.booted().Checks.PIDs != 0; asked != tc.asked {
			t.Errorf("checks of processes requested: got %t, want %t", asked, tc.asked)
		}
	}
}

// walledFake is an engine that has a boundary and saves states.
type walledFake struct{ *fake.Engine }

func (w walledFake) Info() engine.Info { return boundaryEngine{w.Engine}.Info() }
