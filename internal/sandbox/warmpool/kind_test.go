package warmpool

import (
	"errors"
	"testing"
	"testing/synctest"
)

// A request does not wait for a warm-up or a probe while another warm sandbox is free.
func TestTakeLeavesRehearsing(t *testing.T) {
	over := make(chan struct{})
	close(over)
	rehearsing := &warm{id: "rehearsing", warmUp: &warmUp{started: true, task: task{over: make(chan struct{})}}}
	rehearsed := &warm{id: "rehearsed", warmUp: &warmUp{started: true, task: task{over: over}}}
	fresh := &warm{id: "fresh", warmUp: &warmUp{task: task{over: make(chan struct{})}}}
	looked := &warm{id: "looked at", warmUp: &warmUp{}, probing: &task{over: make(chan struct{})}}
	k := &kind{ready: []*warm{rehearsing, looked, rehearsed, fresh}}
	for _, want := range []*warm{rehearsed, fresh, rehearsing, looked, nil} {
		if w := k.take(); w != want {
			t.Fatalf("took %+v, not %+v", w, want)
		}
	}
}

// A caller that is given a sandbox during a probe waits until the probe has reached
// the guest: the deadline that the probe sets there is not the caller's. A sandbox
// that did not answer is not handed out, because it might still apply that deadline.
func TestALookComesBeforeItsClaim(t *testing.T) {
	silent := errors.New("no answer")
	for _, want := range []error{nil, silent} {
		synctest.Test(t, func(t *testing.T) {
			w := &warm{warmUp: &warmUp{}, probing: &task{over: make(chan struct{})}}
			done := make(chan error, 1)
			go func() { done <- w.awaitTasks(t.Context()) }()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("it waited for nothing: %v", err)
			default:
			}
			w.probing.err = want
			close(w.probing.over)
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}
