package warmpool

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestTakePrefersIdleSandboxes checks that a request does not get a sandbox in its warm-up or being
// probed while another warm sandbox is free.
func TestTakePrefersIdleSandboxes(t *testing.T) {
	done := make(chan struct{})
	close(done)
	warmingUp := &warm{id: "warmingUp", warmUp: &warmUp{started: true, task: task{done: make(chan struct{})}}}
	warmedUp := &warm{id: "warmedUp", warmUp: &warmUp{started: true, task: task{done: done}}}
	fresh := &warm{id: "fresh", warmUp: &warmUp{task: task{done: make(chan struct{})}}}
	probed := &warm{id: "probed", warmUp: &warmUp{}, probing: &task{done: make(chan struct{})}}
	k := &kind{ready: []*warm{warmingUp, probed, warmedUp, fresh}}
	for _, want := range []*warm{warmedUp, fresh, warmingUp, probed, nil} {
		if w := k.take(); w != want {
			t.Fatalf("took %+v, want %+v", w, want)
		}
	}
}

// TestAcquireWaitsForProbe checks that an acquisition waits for a probe in progress, because the
// probe sets a deadline in the guest that is not the caller's. A sandbox that did not answer is not
// handed out, because its guest might still apply that deadline.
func TestAcquireWaitsForProbe(t *testing.T) {
	silent := errors.New("no answer")
	for _, want := range []error{nil, silent} {
		synctest.Test(t, func(t *testing.T) {
			w := &warm{warmUp: &warmUp{}, probing: &task{done: make(chan struct{})}}
			done := make(chan error, 1)
			go func() { done <- w.awaitTasks(t.Context()) }()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("awaitTasks returned before the probe was done: %v", err)
			default:
			}
			w.probing.err = want
			close(w.probing.done)
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("awaitTasks: got error %v, want %v", err, want)
			}
		})
	}
}
