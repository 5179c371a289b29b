package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// state returns the state of a sandbox, which must run.
func (r *rig) state(id string) *fake.State {
	r.t.Helper()
	s := r.engine.State(id)
	if s == nil {
		r.t.Fatalf("%s does not run", id)
	}
	return s
}

// booted returns the latest configuration that a guest was given.
func (r *rig) booted() guest.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boots[len(r.boots)-1]
}

// failAt makes one step of the engine fail.
func (r *rig) failAt(step fake.Step, err error) {
	r.setFault(func(at fake.Step, _ string) error {
		if at == step {
			return err
		}
		return nil
	})
}

// wantImages fails the test unless there are exactly so many images and no drafts.
func (r *rig) wantImages(want int) {
	r.t.Helper()
	if images, drafts, leased := r.images.counts(); images != want || drafts != 0 || leased != 0 {
		r.t.Errorf("%d images, %d drafts, %d leased; want %d, 0, 0", images, drafts, leased, want)
	}
}

func TestPauseAndResume(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb := r.create(alice, func(c *sandbox.CreateRequest) {
		c.Name, c.Timeout, c.Metadata = "web", 7*time.Minute, map[string]string{"a": "b"}
	})
	r.state(sb.ID).Remember("x", "1")
	gone := r.Gone(sb.ID)
	paused, err := r.Pause(ctx, alice, "web", false)
	if err != nil || paused.State != sandbox.Paused || paused.PausedAt.IsZero() || !paused.EndAt.Equal(paused.PausedAt) {
		t.Fatalf("paused %+v, %v", paused, err)
	}
	select {
	case <-gone:
	default:
		t.Error("streams are not cut")
	}
	if _, ok := r.Live(sb.ID); ok {
		t.Error("the sandbox is live while it is paused")
	}
	r.wantImages(1)
	if list, err := r.engine.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("the engine still holds %v, %v", list, err)
	}
	got, err := r.Get(ctx, alice, "web")
	if err != nil || got.State != sandbox.Paused || !got.EndAt.Equal(got.PausedAt) {
		t.Errorf("get: %+v, %v", got, err)
	}
	page, err := r.List(ctx, alice, sandbox.Filter{States: []sandbox.State{sandbox.Paused}})
	if err != nil || len(page.Sandboxes) != 1 || page.Running != 0 {
		t.Errorf("list: %+v, %v", page, err)
	}
	_, err = r.Pause(ctx, alice, sb.ID, false)
	wantKind(t, err, fault.Conflict, "sandbox_paused")
	_, err = r.Pause(ctx, bob, sb.ID, false)
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
	_, err = r.Snapshot(ctx, alice, sb.ID, sandbox.SnapshotRequest{})
	wantKind(t, err, fault.Conflict, "sandbox_paused")
	_, err = r.Fork(ctx, alice, sb.ID, sandbox.ForkRequest{Count: 1})
	wantKind(t, err, fault.Conflict, "sandbox_paused")
	_, err = r.SetTimeout(ctx, alice, sb.ID, time.Minute)
	wantKind(t, err, fault.NotFound, "sandbox_not_running")

	resumed, wasPaused, err := r.Resume(ctx, alice, sb.ID, 0)
	if err != nil || !wasPaused || resumed.State != sandbox.Running || !resumed.PausedAt.IsZero() {
		t.Fatalf("resumed %+v, %t, %v", resumed, wasPaused, err)
	}
	if left := time.Until(resumed.EndAt); left > 7*time.Minute || left < 6*time.Minute {
		t.Errorf("ends in %v", left)
	}
	if resumed.AccessToken != sb.AccessToken || resumed.Name != "web" || resumed.Metadata["a"] != "b" || !resumed.StartedAt.Equal(sb.StartedAt) {
		t.Errorf("the resumed sandbox differs: %+v", resumed)
	}
	if got := r.state(sb.ID).Memory("x"); got != "1" {
		t.Errorf("memory is %q", got)
	}
	if c := r.booted(); c.Renew != guest.Resumed || c.SandboxID != sb.ID || c.AccessToken != sb.AccessToken || c.Archive {
		t.Errorf("the guest was given %+v", c)
	}
	r.wantImages(0)
	again, wasPaused, err := r.Resume(ctx, alice, sb.ID, time.Hour)
	if err != nil || wasPaused || time.Until(again.EndAt) < 59*time.Minute {
		t.Errorf("resume of a running sandbox: %t, %v, %v", wasPaused, again.EndAt, err)
	}
	if shorter, _, err := r.Resume(ctx, alice, sb.ID, time.Minute); err != nil || !shorter.EndAt.Equal(again.EndAt) {
		t.Errorf("resume made the end earlier: %v, %v", shorter.EndAt, err)
	}
}

func TestPauseOfFilesOnly(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	r.state(sb.ID).Remember("x", "1")
	r.state(sb.ID).Write("f", "one")
	if _, err := r.Pause(t.Context(), alice, sb.ID, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil {
		t.Fatal(err)
	}
	if s := r.state(sb.ID); s.Memory("x") != "" || s.File("f") != "one" {
		t.Errorf("memory %q, file %q", s.Memory("x"), s.File("f"))
	}
	if c := r.booted(); !c.Archive || c.Renew != guest.Resumed {
		t.Errorf("the guest was given %+v", c)
	}
	r.wantImages(0)
}

// A paused sandbox has no row that could be looked up once it is removed.
func TestRemoveDeletesPausedSandbox(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(t.Context(), alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	_, err := r.Get(t.Context(), alice, sb.ID)
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
	r.wantImages(0)
	r.wantNothingLeft()
}

// A pause that fails at any step leaves the sandbox as it was.
func TestFailedPauseLeavesRunning(t *testing.T) {
	broken := errors.New("broken on purpose")
	for name, fail := range map[string]func(*rig){
		"begin":  func(r *rig) { r.images.budget = fault.New(fault.Exhausted, "snapshot_budget", "full") },
		"save":   func(r *rig) { r.failAt(fake.CheckpointBegin, broken) },
		"saved":  func(r *rig) { r.failAt(fake.CheckpointSaved, syscall.ENOSPC) },
		"commit": func(r *rig) { r.images.commit = broken },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			sb := r.create(alice)
			r.state(sb.ID).Remember("x", "1")
			fail(r)
			_, err := r.Pause(t.Context(), alice, sb.ID, false)
			if err == nil || name == "begin" && fault.CodeOf(err) != "snapshot_budget" || name == "saved" && fault.CodeOf(err) != "snapshot_disk_full" {
				t.Errorf("failed pause: got error %v", err)
			}
			r.setFault(nil)
			r.images.budget, r.images.commit = nil, nil
			if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Running {
				t.Errorf("the sandbox is %s, %v", got.State, err)
			}
			if _, ok := r.Live(sb.ID); !ok || r.body(sb.ID) != sb.ID || r.state(sb.ID).Memory("x") != "1" {
				t.Error("the sandbox does not continue")
			}
			r.wantImages(0)
			if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
				t.Errorf("the next pause: %v", err)
			}
		})
	}
}

// surveyEngine is an engine that reports when it surveys a sandbox's files.
type surveyEngine struct {
	*fake.Engine
	onSurvey func(id string)
}

func (w surveyEngine) Create(ctx context.Context, spec engine.Spec) error {
	spec.Events, spec.EventBytes = nil, 0 // there are no programs to watch
	return w.Engine.Create(ctx, spec)
}

func (w surveyEngine) Survey(_ context.Context, id string) error {
	w.onSurvey(id)
	return nil
}

// TestSandboxIsNotLiveDuringSurvey checks that a sandbox serves no requests while its files are
// surveyed before a pause or its end. An answer would be cut off, and a request that could have
// waited for the resumption would be lost.
func TestSandboxIsNotLiveDuringSurvey(t *testing.T) {
	var live []bool
	var r *rig
	r = newRig(t, func(d *lifecycle.Deps) {
		d.Events = t.TempDir()
		d.Engines = fake.Registry(surveyEngine{d.Engines.Default().(*fake.Engine), func(id string) {
			_, isLive := r.Live(id)
			live = append(live, isLive)
		}})
	})
	for _, act := range []func(id string) error{
		func(id string) error {
			_, err := r.Pause(t.Context(), alice, id, false)
			return err
		},
		func(id string) error { return r.Remove(t.Context(), alice, id) },
	} {
		live = nil
		sb := r.create(alice)
		if err := act(sb.ID); err != nil {
			t.Fatal(err)
		}
		if len(live) == 0 || slices.Contains(live, true) {
			t.Errorf("the sandbox was live during the survey: %v", live)
		}
	}
}

// A resumption that fails at any step leaves the sandbox paused, with its saved state.
func TestFailedResumeLeavesPaused(t *testing.T) {
	checkFailedResume(t, (*rig).Resume, fake.RestoreBegin, fake.CreateDir, fake.CreateServe, fake.CreateReady)
}

// checkFailedResume makes a resumption fail at each of some steps, and checks that the sandbox is
// then paused with its memory as before.
func checkFailedResume(t *testing.T, resume func(*rig, context.Context, sandbox.Principal, string, time.Duration) (sandbox.Sandbox, bool, error), steps ...fake.Step) {
	broken := errors.New("broken on purpose")
	for _, step := range steps {
		t.Run(string(step), func(t *testing.T) {
			r := newRig(t)
			sb := r.create(alice)
			r.state(sb.ID).Remember("x", "1")
			if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
				t.Fatal(err)
			}
			r.failAt(step, broken)
			if _, _, err := resume(r, t.Context(), alice, sb.ID, 0); !errors.Is(err, broken) {
				t.Errorf("got error %v, want the injected one", err)
			}
			r.setFault(nil)
			if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Paused || got.FilesOnly {
				t.Errorf("the sandbox is %+v, %v", got, err)
			}
			r.wantImages(1)
			if list, err := r.engine.List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("instances remain: %v, %v", list, err)
			}
			if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil || r.state(sb.ID).Memory("x") != "1" {
				t.Errorf("the next attempt: %v", err)
			}
		})
	}
}

// P25: a state that was changed on disk is not restored.
func TestResumeRejectsDamagedState(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(r.dir, "states", "images", "*", "memory.pages"))
	if err != nil || len(pages) != 1 {
		t.Fatalf("files of memory pages: got %v, %v; want one", pages, err)
	}
	pagesData, err := os.ReadFile(pages[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pages[0], append(pagesData, ' '), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err = r.Resume(t.Context(), alice, sb.ID, 0)
	wantKind(t, err, fault.Invalid, "snapshot_damaged")
	if err := os.WriteFile(pages[0], pagesData, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil {
		t.Errorf("resumption of the unchanged state: %v", err)
	}
}

// Concurrent requests to resume share one resumption, and all of them wait for a pause in progress.
func TestConcurrentResumesShareOne(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	saving, release := make(chan struct{}), make(chan struct{})
	r.setFault(func(step fake.Step, _ string) error {
		if step == fake.CheckpointSaved {
			close(saving)
			<-release
		}
		return nil
	})
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Error(err)
		}
	})
	<-saving
	if got, err := r.Get(t.Context(), alice, sb.ID); err != nil || got.State != sandbox.Pausing {
		t.Errorf("the sandbox is %s, %v", got.State, err)
	}
	if _, ok := r.Live(sb.ID); ok {
		t.Error("the sandbox is live while it is paused")
	}
	var mu sync.Mutex
	resumed := 0
	for range 8 {
		group.Go(func() {
			got, wasPaused, err := r.Resume(t.Context(), alice, sb.ID, 0)
			if err != nil || got.State != sandbox.Running {
				t.Errorf("concurrent resumption: got %s, %v", got.State, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if wasPaused {
				resumed++
			}
		})
	}
	close(release)
	group.Wait()
	if resumed != 1 || r.body(sb.ID) != sb.ID {
		t.Errorf("%d requests have resumed the sandbox, want 1", resumed)
	}
	r.wantImages(0)
}

// A paused sandbox counts for one limit, a running one for the other.
func TestPauseEnforcesMaxPaused(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Settings.MaxLive, d.Settings.MaxPaused = 2, 1 })
	ctx := t.Context()
	first, second := r.create(alice), r.create(alice)
	if _, err := r.Pause(ctx, alice, first.ID, false); err != nil {
		t.Fatal(err)
	}
	_, err := r.Pause(ctx, alice, second.ID, false)
	wantKind(t, err, fault.Exhausted, "too_many_paused")
	r.wantImages(1)
	third := r.create(alice) // the paused one does not count
	_, _, err = r.Resume(ctx, alice, first.ID, 0)
	wantKind(t, err, fault.Exhausted, "too_many_sandboxes")
	if err := r.Remove(ctx, alice, third.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Resume(ctx, alice, first.ID, 0); err != nil {
		t.Error(err)
	}
}

func TestPauseAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx := t.Context()
		sb := r.create(alice, func(c *sandbox.CreateRequest) {
			c.Timeout, c.OnEnd = time.Minute, sandbox.OnEnd{Pause: true, Wake: true}
		})
		if c := r.booted(); !c.EndAt.IsZero() {
			t.Errorf("the guest would end it at %v", c.EndAt)
		}
		r.state(sb.ID).Remember("x", "1")
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.State != sandbox.Paused {
			t.Fatalf("the sandbox is %s (%s), %v", got.State, got.Reason, err)
		}
		woken, err := r.Wake(ctx, sb.ID)
		if err != nil || time.Until(woken.EndAt) != 5*time.Minute || r.state(sb.ID).Memory("x") != "1" {
			t.Errorf("woken for %v, %v", time.Until(woken.EndAt), err)
		}
		other := r.create(alice)
		if _, err := r.Pause(ctx, alice, other.ID, false); err != nil {
			t.Fatal(err)
		}
		_, err = r.Wake(ctx, other.ID)
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
	})
}

// A failed pause does not end the sandbox. The pause is retried until no client would
// still wait for the sandbox.
func TestFailedPauseAtDeadlineIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(d *lifecycle.Deps) { d.Settings.Retention = time.Hour })
		ctx := t.Context()
		sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout, c.OnEnd.Pause = time.Minute, true })
		late := r.create(alice, func(c *sandbox.CreateRequest) { c.Timeout, c.OnEnd.Pause = time.Minute, true })
		tries := 0
		r.setFault(func(step fake.Step, id string) error {
			if step == fake.CheckpointBegin {
				if id == sb.ID {
					tries++
				}
				return syscall.ENOSPC
			}
			return nil
		})
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.State != sandbox.Running || tries < 20 || tries > 60 {
			t.Errorf("the sandbox is %s after %d tries, %v", got.State, tries, err)
		}
		r.setFault(func(step fake.Step, id string) error {
			if step == fake.CheckpointBegin && id == late.ID {
				return syscall.ENOSPC
			}
			return nil
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got, err := r.Get(ctx, alice, sb.ID); err != nil || got.State != sandbox.Paused {
			t.Errorf("after the disk has space, the sandbox is %s, %v", got.State, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, err := r.Get(ctx, alice, late.ID); err != nil || got.Reason != sandbox.ReasonPauseFailed {
			t.Errorf("after the retention, the sandbox is %s (%s), %v", got.State, got.Reason, err)
		}
		r.wantImages(1)
	})
}

func TestCreateRejectsContradictoryOnEnd(t *testing.T) {
	r := newRig(t)
	for _, o := range []sandbox.OnEnd{{FilesOnly: true}, {Pause: true, FilesOnly: true, Wake: true}} {
		_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", OnEnd: o})
		wantKind(t, err, fault.Invalid, "on_end_invalid")
	}
	withoutImages := newRig(t, func(d *lifecycle.Deps) { d.Images = nil })
	_, err := withoutImages.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", OnEnd: sandbox.OnEnd{Pause: true}})
	wantKind(t, err, fault.Unsupported, "state_unsupported")
}

// TestZeroTimeoutEndsPausedSandbox checks that a paused sandbox that is ended keeps its row, but
// not its image.
func TestZeroTimeoutEndsPausedSandbox(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	ended, err := r.SetTimeout(t.Context(), alice, sb.ID, 0)
	if err != nil || ended.State != sandbox.Stopped {
		t.Fatalf("SetTimeout with zero: got %+v, %v", ended, err)
	}
	got, err := r.Get(t.Context(), alice, sb.ID)
	for _, shown := range []sandbox.Sandbox{ended, got} {
		if err != nil || !shown.PausedAt.IsZero() || shown.StoppedAt.IsZero() || !shown.EndAt.Equal(sb.EndAt) {
			t.Errorf("paused %v, stopped %v, to end %v: %v", shown.PausedAt, shown.StoppedAt, shown.EndAt, err)
		}
	}
	if sizes, err := r.images.Sizes(t.Context()); err != nil || len(sizes) > 0 {
		t.Errorf("images remain: %v, %v", sizes, err)
	}
}
