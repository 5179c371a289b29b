package lifecycle_test

import (
	"encoding/json"
	"testing"

	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// TestFlowFollowerLearnsEnd checks that a follower of a sandbox's flows gets the end of the stream,
// even if another process has just created the sandbox.
func TestFlowFollowerLearnsEnd(t *testing.T) {
	logs := flows.New(t.TempDir())
	with := func(d *lifecycle.Deps) { d.Gateway, d.Flows = &inputRecorder{}, logs }
	r := newRig(t, with)
	other := r.otherProcess(t, with)
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Access = sandbox.Access{Allow: []string{"a.test"}} })
	f, err := logs.Create(sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen, done := make(chan uint64, 1), make(chan error, 1)
	go func() {
		done <- other.Flows(t.Context(), alice, sb.ID, flows.Filter{}, true, func(r egress.Record) error { seen <- r.Seq; return nil })
	}()
	if err := json.NewEncoder(f).Encode(egress.Record{Seq: 7}); err != nil {
		t.Fatal(err)
	}
	if seq := <-seen; seq != 7 {
		t.Fatalf("got record %d, want 7", seq)
	}
	if err := other.Remove(t.Context(), alice, sb.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-hosttest.Late():
		t.Error("the sandbox has ended, but its flows are still followed")
	}
}
