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

// unreadable is a store that fails to read a row once, when its countdown is over.
type unreadable struct {
	sandbox.Store
	reads *atomic.Int64
}

func (u unreadable) Get(ctx context.Context, id string) (sandbox.Row, error) {
	if u.reads.Add(-1) == 0 {
		return sandbox.Row{}, errBroken
	}
	return u.Store.Get(ctx, id)
}

// A row that cannot be read is not mistaken for one that does not exist. Otherwise a sandbox whose
// engine is missing would be marked as ending, although nothing here can end it.
func TestForgetReportsAnUnreadableRow(t *testing.T) {
	r := twoEngines(t)
	sb := r.create(alice, on("other"))
	r.close()
	reads := &atomic.Int64{}
	r.open(func(d *lifecycle.Deps) { d.Store = unreadable{d.Store, reads} })
	const many = 12
	broke := 0
	for n := range int64(many) {
		reads.Store(n + 1)
		err := r.Forget(t.Context(), alice, sb.ID)
		if errors.Is(err, errBroken) {
			broke++
		} else if fault.CodeOf(err) != engine.CodeUnavailable {
			t.Errorf("read %d fails: %v", n+1, err)
		}
		if row, err := r.store.Get(t.Context(), sb.ID); err != nil || row.State != sandbox.Running {
			t.Errorf("read %d fails: the row is %s, %v", n+1, row.State, err)
		}
	}
	if broke < 2 || broke == many {
		t.Errorf("%d of %d failed reads were reported", broke, many)
	}
}
