package sandbox_test

import (
	"encoding/json"
	"testing"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/hosttest"
	"github.com/crannog/crannog/internal/netlog"
	"github.com/crannog/crannog/internal/sandbox"
)

// Who follows what a sandbox does over its link hears of its end, also where
// another process made the sandbox a moment ago.
func TestFollowersOfASandboxMadeElsewhere(t *testing.T) {
	logs := netlog.New(t.TempDir())
	with := func(d *sandbox.Deps) { d.Way, d.Flows = &road{}, logs }
	r := newRig(t, with)
	other := r.beside(t, with)
	sb := r.create(alice, func(c *sandbox.CreateRequest) { c.Access = sandbox.Access{Allow: []string{"a.test"}} })
	f, err := logs.Create(sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen, done := make(chan uint64, 1), make(chan error, 1)
	go func() {
		done <- other.Flows(t.Context(), alice, sb.ID, netlog.Filter{}, true, func(r causeway.Record) error { seen <- r.Seq; return nil })
	}()
	if err := json.NewEncoder(f).Encode(causeway.Record{Seq: 7}); err != nil {
		t.Fatal(err)
	}
	if seq := <-seen; seq != 7 {
		t.Fatalf("record %d", seq)
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
		t.Error("the sandbox has ended, and the follower does not know")
	}
}
