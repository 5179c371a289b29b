package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/store"
)

// errDead is returned to a process that continues after its simulated death.
var errDead = errors.New("this process is dead")

// crashPoints stops a process at its n-th tick: all its later calls hang, as if it had been killed
// there, while its sandboxes continue.
type crashPoints struct {
	mu        sync.Mutex
	armed     bool
	left      int
	crashed   chan struct{} // closed at the n-th tick
	testEnded chan struct{} // closed when the test ends, so that hanging calls return
}

func newCrashPoints() *crashPoints {
	return &crashPoints{crashed: make(chan struct{}), testEnded: make(chan struct{})}
}

func (g *crashPoints) arm(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed, g.left = true, n
}

func (g *crashPoints) tick() error {
	g.mu.Lock()
	if !g.armed {
		g.mu.Unlock()
		return nil
	}
	if g.left--; g.left == 0 {
		close(g.crashed)
	}
	dead := g.left <= 0
	g.mu.Unlock()
	if !dead {
		return nil
	}
	<-g.testEnded
	return errDead
}

// crashAround ticks before and after a step.
func crashAround[T any](g *crashPoints, do func() (T, error)) (T, error) {
	var none T
	if err := g.tick(); err != nil {
		return none, err
	}
	v, err := do()
	return v, errors.Join(err, g.tick())
}

func (g *crashPoints) crashAround(do func() error) error {
	_, err := crashAround(g, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// hangingStore is a store whose process dies at a tick.
type hangingStore struct {
	sandbox.Store
	*crashPoints
}

func (d hangingStore) Insert(ctx context.Context, r sandbox.Row, max int) error {
	return d.crashAround(func() error { return d.Store.Insert(ctx, r, max) })
}

func (d hangingStore) Move(ctx context.Context, id string, m sandbox.Move) (bool, error) {
	return crashAround(d.crashPoints, func() (bool, error) { return d.Store.Move(ctx, id, m) })
}

func (d hangingStore) Delete(ctx context.Context, id string) error {
	return d.crashAround(func() error { return d.Store.Delete(ctx, id) })
}

func (d hangingStore) InsertSnapshot(ctx context.Context, n sandbox.Stored) error {
	return d.crashAround(func() error { return d.Store.InsertSnapshot(ctx, n) })
}

func (d hangingStore) KeepSnapshot(ctx context.Context, id, sum string, bytes int64, needs *sandbox.Needs) error {
	return d.crashAround(func() error { return d.Store.KeepSnapshot(ctx, id, sum, bytes, needs) })
}

func (d hangingStore) DeleteSnapshot(ctx context.Context, id string) error {
	return d.crashAround(func() error { return d.Store.DeleteSnapshot(ctx, id) })
}

// hangingImages is fakeImages whose process dies at a tick.
type hangingImages struct {
	*fakeImages
	*crashPoints
}

func (a hangingImages) Begin(id string) (sandbox.Draft, error) {
	d, err := crashAround(a.crashPoints, func() (sandbox.Draft, error) { return a.fakeImages.Begin(id) })
	return hangingDraft{d, a.crashPoints}, err
}

func (a hangingImages) Remove(ctx context.Context, id string) error {
	return a.crashAround(func() error { return a.fakeImages.Remove(ctx, id) })
}

type hangingDraft struct {
	sandbox.Draft
	*crashPoints
}

func (d hangingDraft) Commit(ctx context.Context, parent string) (sandbox.Image, error) {
	return crashAround(d.crashPoints, func() (sandbox.Image, error) { return d.Draft.Commit(ctx, parent) })
}

func (d hangingDraft) Abort() error { return d.crashAround(d.Draft.Abort) }

// newCrashingService returns a Service of a process that dies, on the state of a rig.
func newCrashingService(t *testing.T, r *rig, g *crashPoints) *audited.Service {
	t.Helper()
	st, err := store.Open(t.Context(), r.dir)
	if err != nil {
		t.Fatal(err)
	}
	eng, err := fake.New(fake.Options{Dir: filepath.Join(r.dir, "run"), Guest: r.guest, Fault: func(fake.Step, string) error { return g.tick() }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := audited.NewService(lifecycle.Deps{
		Store: hangingStore{st, g}, Engines: fake.Registry(eng), Templates: templates{}, Images: hangingImages{r.images, g}, Log: slog.New(slog.DiscardHandler),
		Audit: auditlog.New(r.record, slog.New(slog.DiscardHandler)), Settings: sandbox.Settings{AnyBoundary: true}, Process: sandbox.Process{PID: 1 << 30, Start: "dead"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.mu.Lock()
		g.armed, g.left = true, min(g.left, 0) // the process counts as dead, whether a call hung or not
		g.mu.Unlock()
		close(g.testEnded)
		_ = s.Close(context.Background()) // a dead process cannot write its end
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// P7: a process that is killed at any step of saving or restoring a state loses no
// sandbox. The sandbox runs or is paused, with its data, and nothing else is left.
func TestCrashAtEachStepOfStateChange(t *testing.T) {
	type setup struct {
		s  *audited.Service
		id string
		n  string // a snapshot with x=1
	}
	ops := map[string]struct {
		paused bool
		do     func(ctx context.Context, u setup) error
		want   []string // possible values of x afterwards
	}{
		"pause":       {false, func(ctx context.Context, u setup) error { _, err := u.s.Pause(ctx, local, u.id, false); return err }, []string{"2"}},
		"pause files": {false, func(ctx context.Context, u setup) error { _, err := u.s.Pause(ctx, local, u.id, true); return err }, []string{"2", ""}},
		"resume":      {true, func(ctx context.Context, u setup) error { _, _, err := u.s.Resume(ctx, local, u.id, 0); return err }, []string{"2"}},
		"resume files": {true, func(ctx context.Context, u setup) error {
			_, _, err := u.s.ResumeFiles(ctx, local, u.id, 0)
			return err
		}, []string{"2", ""}},
		"snapshot": {false, func(ctx context.Context, u setup) error {
			_, err := u.s.Snapshot(ctx, local, u.id, sandbox.SnapshotRequest{Name: "m"})
			return err
		}, []string{"2"}},
		"remove": {false, func(ctx context.Context, u setup) error { return u.s.RemoveSnapshot(ctx, local, u.n) }, []string{"2"}},
		"fork": {false, func(ctx context.Context, u setup) error {
			_, err := u.s.Fork(ctx, local, u.id, sandbox.ForkRequest{Count: 2})
			return err
		}, []string{"2"}},
		"rollback":      {false, func(ctx context.Context, u setup) error { _, err := u.s.Rollback(ctx, local, u.id, u.n); return err }, []string{"2", "1"}},
		"rollback back": {true, func(ctx context.Context, u setup) error { _, err := u.s.Rollback(ctx, local, u.id, u.n); return err }, []string{"2", "1"}},
		"reset":         {false, func(ctx context.Context, u setup) error { _, err := u.s.Reset(ctx, local, u.id); return err }, []string{"2", ""}},
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := 0
			for n := 1; ; n++ {
				if n == 200 {
					t.Fatal("the process still crashes at step 200")
				}
				ended := false
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						g := newCrashPoints()
						r := newRig(t, func(d *lifecycle.Deps) {
							d.Alive = func(p sandbox.Process) bool { return p.Start != "dead" }
						})
						s := newCrashingService(t, r, g)
						sb, err := s.Create(t.Context(), local, sandbox.CreateRequest{Template: "base"})
						if err != nil {
							t.Fatal(err)
						}
						r.state(sb.ID).Remember("x", "1")
						r.state(sb.ID).Write("f", "kept")
						snap, err := s.Snapshot(t.Context(), local, sb.ID, sandbox.SnapshotRequest{Name: "n"})
						if err != nil {
							t.Fatal(err)
						}
						r.state(sb.ID).Remember("x", "2")
						if op.paused {
							if _, err := s.Pause(t.Context(), local, sb.ID, false); err != nil {
								t.Fatal(err)
							}
						}
						done := make(chan error, 1)
						g.arm(n)
						go func() { done <- op.do(context.Background(), setup{s, sb.ID, snap.ID}) }()
						select {
						case err := <-done:
							if err != nil {
								t.Errorf("the operation failed without a crash: %v", err)
							}
							ended = true
						case <-g.crashed:
							synctest.Wait() // until nothing changes any more
						}
						r.checkSurvives(sb.ID, op.want)
						if f := r.state(sb.ID).File("f"); f != "kept" && name != "reset" {
							t.Errorf("file f is %q, want kept", f)
						}
					})
				})
				if ended || t.Failed() {
					break
				}
				steps++
			}
			if steps < 4 {
				t.Errorf("the process survived %d steps; its crash points are not reached", steps)
			}
		})
	}
}

// checkSurvives checks that a sandbox continues with one of the values, that no step is half done,
// and that everything that exists belongs to a row.
func (r *rig) checkSurvives(id string, want []string) {
	r.t.Helper()
	ctx := r.t.Context()
	r.record.Crash()
	defer r.checkAudit()
	var err error
	if r.images, err = newFakeImages(r.images.dir); err != nil { // as a starting process does
		r.t.Fatal(err)
	}
	report := r.reconcile()
	got, err := r.Get(ctx, local, id)
	if err != nil || got.State != sandbox.Running && got.State != sandbox.Paused {
		r.t.Fatalf("the sandbox is %s (%s), %v; report %+v", got.State, got.Reason, err, report)
	}
	snapshots, err := r.Snapshots(ctx, local, sandbox.SnapshotFilter{})
	if err != nil {
		r.t.Error(err)
	}
	rows, err := r.store.List(ctx, sandbox.Query{AllOwners: true})
	if err != nil {
		r.t.Error(err)
	}
	paused, live := 0, map[string]bool{}
	for _, row := range rows {
		switch row.State {
		case sandbox.Paused:
			paused++
		case sandbox.Running:
			live[row.ID] = true
		default:
			r.t.Errorf("row %s is %s (%s), want running or paused", row.ID, row.State, row.Reason)
		}
	}
	if _, err := r.Prune(ctx, local); err != nil {
		r.t.Error(err)
	}
	r.wantImages(len(snapshots.Snapshots) + paused)
	held, err := r.engine.List(ctx)
	if err != nil || len(held) != len(live) {
		r.t.Errorf("the engine holds %v for %v, %v", held, live, err)
	}
	if _, _, err := r.Resume(ctx, local, id, 0); err != nil {
		r.t.Fatalf("the sandbox does not resume: %v", err)
	}
	if x := r.state(id).Memory("x"); !slices.Contains(want, x) || r.body(id) != id {
		r.t.Errorf("x is %q, want one of %q", x, want)
	}
	for _, n := range snapshots.Snapshots {
		if made := r.create(local, from(n.ID)); !slices.Contains([]string{"1", "2"}, r.state(made.ID).Memory("x")) {
			r.t.Errorf("snapshot %s has %q", n.ID, r.state(made.ID).Memory("x"))
		}
	}
}
