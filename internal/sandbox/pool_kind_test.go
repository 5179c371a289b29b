package sandbox

import "testing"

// Nobody waits for a rehearsal as long as another sandbox waits.
func TestTakeLeavesRehearsing(t *testing.T) {
	over := make(chan struct{})
	close(over)
	rehearsing := &waiting{id: "rehearsing", rehearsal: &rehearsal{begun: true, over: make(chan struct{})}}
	rehearsed := &waiting{id: "rehearsed", rehearsal: &rehearsal{begun: true, over: over}}
	fresh := &waiting{id: "fresh", rehearsal: &rehearsal{over: make(chan struct{})}}
	k := &kind{ready: []*waiting{rehearsing, rehearsed, fresh}}
	for _, want := range []*waiting{rehearsed, fresh, rehearsing, nil} {
		if w := k.take(); w != want {
			t.Fatalf("took %+v, not %+v", w, want)
		}
	}
}
