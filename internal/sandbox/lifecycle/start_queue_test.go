package lifecycle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// gatedRig is a rig whose boots block until the test releases them.
type gatedRig struct {
	*rig
	boots      chan string   // IDs of sandboxes that have begun to boot
	gate       chan struct{} // each value releases one; closed releases all
	releaseAll func()
}

func newGatedRig(t *testing.T, o admission.Options) *gatedRig {
	g := &gatedRig{boots: make(chan string, 1000), gate: make(chan struct{})}
	g.releaseAll = sync.OnceFunc(func() { close(g.gate) })
	g.rig = newRig(t, func(d *lifecycle.Deps) { d.Admission = admission.New(o) })
	t.Cleanup(g.releaseAll) // before the rig is closed
	g.setFault(func(at fake.Step, id string) error {
		if at == fake.Steps[0] {
			g.boots <- id
			<-g.gate
		}
		return nil
	})
	return g
}

// begin requests a sandbox in the background.
func (g *gatedRig) begin(ctx context.Context, caller sandbox.Principal, label string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := g.Create(ctx, caller, sandbox.CreateRequest{Template: "base", RequestID: label})
		done <- err
	}()
	return done
}

// places waits until so many wait, and returns the caller's own.
func (g *gatedRig) places(caller sandbox.Principal, waiting int) map[string]int {
	g.t.Helper()
	var q lifecycle.Queue
	hosttest.Eventually(g.t, fmt.Sprintf("%d wait", waiting), func() bool {
		var err error
		if q, err = g.Queue(g.t.Context(), caller); err != nil {
			g.t.Error(err)
		}
		return q.Waiting == waiting
	})
	places := make(map[string]int)
	for _, p := range q.Positions {
		places[p.Label] = p.Number
	}
	return places
}

// P48: a burst of requests is started in order, only two at a time, and no request is lost.
func TestBurstIsAdmittedInOrder(t *testing.T) {
	g := newGatedRig(t, admission.Options{AtOnce: 2})
	const burst = 50
	var all []<-chan error
	for i := range burst {
		all = append(all, g.begin(t.Context(), alice, fmt.Sprint(i)))
		if i < 2 {
			<-g.boots
		} else {
			g.places(alice, i-1)
		}
	}
	if more := len(g.boots); more != 0 {
		t.Errorf("%d more boots than the two that are admitted", more)
	}
	places := g.places(alice, burst-2)
	if places["2"] != 1 || places[fmt.Sprint(burst-1)] != burst-2 {
		t.Errorf("places of the first and the last waiting request: got %v", places)
	}
	if seen := g.places(bob, burst-2); len(seen) != 0 {
		t.Errorf("another key sees %v", seen)
	}
	if seen := g.places(local, burst-2); len(seen) != burst-2 {
		t.Errorf("a local caller sees %d", len(seen))
	}
	g.releaseAll()
	for i, done := range all {
		if err := <-done; err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	if n := len(g.places(alice, 0)); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// TestWaitingRequestIsRemovedOrCanceled checks that a waiting request is listed, can be removed,
// and ends when its caller is canceled.
func TestWaitingRequestIsRemovedOrCanceled(t *testing.T) {
	g := newGatedRig(t, admission.Options{AtOnce: 1})
	first := g.begin(t.Context(), alice, "first")
	<-g.boots
	ctx, leave := context.WithCancel(t.Context())
	left := g.begin(ctx, alice, "leaves")
	g.places(alice, 1)
	removed := g.begin(t.Context(), alice, "removed")
	g.places(alice, 2)
	leave()
	wantKind(t, <-left, fault.Canceled, "canceled")
	g.places(alice, 1)
	page, err := g.List(t.Context(), alice, sandbox.Filter{States: []sandbox.State{sandbox.Creating}, Ascending: true})
	if err != nil || len(page.Sandboxes) != 2 {
		t.Fatalf("creating: %+v, %v", page, err)
	}
	q, err := g.Queue(t.Context(), alice)
	if err != nil || len(q.Positions) != 1 {
		t.Fatalf("queue: %+v, %v", q, err)
	}
	if err := g.Remove(t.Context(), alice, q.Positions[0].Sandbox); err != nil {
		t.Error(err)
	}
	wantKind(t, <-removed, fault.Conflict, sandbox.CodeRemoved)
	g.releaseAll()
	if err := <-first; err != nil {
		t.Error(err)
	}
	page, err = g.List(t.Context(), alice, sandbox.Filter{})
	if err != nil || len(page.Sandboxes) != 1 {
		t.Errorf("at the end: %+v, %v", page, err)
	}
}

func TestOverloadLeavesNothing(t *testing.T) {
	g := newGatedRig(t, admission.Options{AtOnce: 1, MaxWaiting: 2})
	first := g.begin(t.Context(), alice, "")
	<-g.boots
	second := g.begin(t.Context(), alice, "")
	g.places(alice, 1)
	_, err := g.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base"})
	wantKind(t, err, fault.Exhausted, admission.CodeOverloaded)
	if fault.RetryAfter(err) < time.Second || fault.HintOf(err) == "" {
		t.Errorf("retry after %s, hint %q", fault.RetryAfter(err), fault.HintOf(err))
	}
	third := g.begin(t.Context(), bob, "")
	g.places(bob, 2)
	_, err = g.Create(t.Context(), sandbox.Principal{KeyID: "carol"}, sandbox.CreateRequest{Template: "base"})
	wantKind(t, err, fault.Exhausted, admission.CodeOverloaded)
	g.releaseAll()
	for _, done := range []<-chan error{first, second, third} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	page, err := g.List(t.Context(), local, sandbox.Filter{States: []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Stopped}})
	if err != nil || len(page.Sandboxes) != 3 {
		t.Errorf("%d rows, want 3, %v", len(page.Sandboxes), err)
	}
}

// Resuming and rolling back wait for their turn too, and after a refusal the sandbox is paused or
// runs as before.
func TestResumeWaitsForTurn(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Admission = admission.New(admission.Options{AtOnce: 1, MaxWaiting: 1}) })
	paused := r.create(alice)
	if _, err := r.Pause(t.Context(), alice, paused.ID, false); err != nil {
		t.Fatal(err)
	}
	gate, started := make(chan struct{}), make(chan string, 10)
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	r.setFault(func(at fake.Step, id string) error {
		if at == fake.Steps[0] && id != paused.ID {
			started <- id
			<-gate
		}
		return nil
	})
	g := &gatedRig{rig: r}
	first := g.begin(t.Context(), alice, "")
	<-started
	second := g.begin(t.Context(), alice, "")
	g.places(alice, 1)
	_, _, err := r.Resume(t.Context(), alice, paused.ID, 0)
	wantKind(t, err, fault.Exhausted, admission.CodeOverloaded)
	if sb, err := r.Get(t.Context(), alice, paused.ID); err != nil || sb.State != sandbox.Paused {
		t.Errorf("after the refusal: %s, %v", sb.State, err)
	}
	open()
	for _, done := range []<-chan error{first, second} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if sb, _, err := r.Resume(t.Context(), alice, paused.ID, 0); err != nil || sb.State != sandbox.Running {
		t.Errorf("resumed: %s, %v", sb.State, err)
	}
}
