package sandbox

import (
	"errors"
	"testing"
	"testing/synctest"
)

// Nobody waits for a rehearsal or a look as long as another sandbox waits.
func TestTakeLeavesRehearsing(t *testing.T) {
	over := make(chan struct{})
	close(over)
	rehearsing := &waiting{id: "rehearsing", rehearsal: &rehearsal{begun: true, look: look{over: make(chan struct{})}}}
	rehearsed := &waiting{id: "rehearsed", rehearsal: &rehearsal{begun: true, look: look{over: over}}}
	fresh := &waiting{id: "fresh", rehearsal: &rehearsal{look: look{over: make(chan struct{})}}}
	looked := &waiting{id: "looked at", rehearsal: &rehearsal{}, looking: &look{over: make(chan struct{})}}
	k := &kind{ready: []*waiting{rehearsing, looked, rehearsed, fresh}}
	for _, want := range []*waiting{rehearsed, fresh, rehearsing, looked, nil} {
		if w := k.take(); w != want {
			t.Fatalf("took %+v, not %+v", w, want)
		}
	}
}

// Who is handed a sandbox that is being looked at waits until that has reached
// it: the end that it is given there is nobody's. One that did not answer is not
// handed over, because it might still take that end.
func TestALookComesBeforeItsClaim(t *testing.T) {
	silent := errors.New("no answer")
	for _, want := range []error{nil, silent} {
		synctest.Test(t, func(t *testing.T) {
			w := &waiting{rehearsal: &rehearsal{}, looking: &look{over: make(chan struct{})}}
			done := make(chan error, 1)
			go func() { done <- w.alone(t.Context()) }()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("it waited for nothing: %v", err)
			default:
			}
			w.looking.err = want
			close(w.looking.over)
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
}
