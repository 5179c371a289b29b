package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// failingReads is a store that fails to read a row once, when its countdown is over.
type failingReads struct {
	sandbox.Store
	reads *atomic.Int64
}

func (u failingReads) Get(ctx context.Context, id string) (sandbox.Row, error) {
	if u.reads.Add(-1) == 0 {
		return sandbox.Row{}, errInjected
	}
	return u.Store.Get(ctx, id)
}

// TestForgetReportsUnreadableRow checks that a row that cannot be read is not mistaken for a
// missing row. Otherwise a sandbox whose engine is missing would be marked as ending, although
// nothing here can end it.
func TestForgetReportsUnreadableRow(t *testing.T) {
	r := newRigWithTwoEngines(t)
	sb := r.create(alice, onEngine("other"))
	r.close()
	reads := &atomic.Int64{}
	r.open(func(d *lifecycle.Deps) { d.Store = failingReads{d.Store, reads} })
	const rounds = 12
	reported := 0
	for n := range int64(rounds) {
		reads.Store(n + 1)
		err := r.Forget(t.Context(), alice, sb.ID)
		if errors.Is(err, errInjected) {
			reported++
		} else if fault.CodeOf(err) != engine.CodeUnavailable {
			t.Errorf("read %d fails: %v", n+1, err)
		}
		if row, err := r.store.Get(t.Context(), sb.ID); err != nil || row.State != sandbox.Running {
			t.Errorf("read %d fails: the row is %s, %v", n+1, row.State, err)
		}
	}
	if reported < 2 || reported == rounds {
		t.Errorf("%d of %d failed reads were reported", reported, rounds)
	}
}
