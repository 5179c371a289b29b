package lifecycle_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// concurrentCallers lets many callers act on their own and on other owners' sandboxes.
type concurrentCallers struct {
	t        *testing.T
	services []*rig

	mu     sync.Mutex
	owners map[string]string // by ID
}

// caller acts at random and checks what must hold whatever the others do.
func (c *concurrentCallers) caller(seed uint64, caller sandbox.Principal) error {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var mine []string
	for range 40 {
		r := c.services[rnd.IntN(len(c.services))]
		switch n := rnd.IntN(10); {
		case n < 3 || len(mine) == 0:
			sb, err := r.Create(c.t.Context(), caller, sandbox.CreateRequest{Template: "base"})
			if err != nil {
				return fmt.Errorf("create: %w", err)
			}
			mine = append(mine, sb.ID)
			c.mu.Lock()
			c.owners[sb.ID] = caller.KeyID
			c.mu.Unlock()
		case n < 6:
			if err := c.act(r, caller, mine[rnd.IntN(len(mine))], rnd); err != nil {
				return err
			}
		case n < 9:
			if err := c.actOnOther(r, caller, rnd); err != nil {
				return err
			}
		default:
			if err := incompleteError(r.Reconcile(c.t.Context())); err != nil {
				return fmt.Errorf("reconcile: %w", err)
			}
		}
	}
	return nil
}

// act operates on one's own sandbox, which may have ended.
func (c *concurrentCallers) act(r *rig, caller sandbox.Principal, id string, rnd *rand.Rand) error {
	var err error
	switch rnd.IntN(4) {
	case 0:
		_, err = r.SetTimeout(c.t.Context(), caller, id, time.Duration(rnd.IntN(3))*time.Millisecond)
	case 1:
		_, err = r.Extend(c.t.Context(), caller, id, time.Hour)
	case 2:
		err = r.Remove(c.t.Context(), caller, id)
	case 3:
		err = r.Forget(c.t.Context(), caller, id)
	}
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return fmt.Errorf("own sandbox: %w", err)
	}
	return nil
}

// actOnOther tries to operate on another owner's sandbox.
func (c *concurrentCallers) actOnOther(r *rig, caller sandbox.Principal, rnd *rand.Rand) error {
	c.mu.Lock()
	var otherID string
	for id, owner := range c.owners { // in random order
		if owner != caller.KeyID {
			otherID = id
			break
		}
	}
	c.mu.Unlock()
	if otherID == "" {
		return nil
	}
	ops := []func() error{
		func() error { return r.Remove(c.t.Context(), caller, otherID) },
		func() error { return r.Forget(c.t.Context(), caller, otherID) },
		func() error { _, err := r.SetTimeout(c.t.Context(), caller, otherID, 0); return err },
		func() error { _, err := r.Get(c.t.Context(), caller, otherID); return err },
	}
	err := ops[rnd.IntN(len(ops))]()
	if fault.KindOf(err) != fault.NotFound || fault.CodeOf(err) != "sandbox_not_found" {
		return fmt.Errorf("%s acted on %s of another owner: %v", caller.KeyID, otherID, err)
	}
	return nil
}

// P2, P9: owners that act at once through several processes never reach each other's
// sandboxes, and nothing is left behind.
func TestConcurrentOwnersStayApart(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("callers", func(t *testing.T) {
		first := newRig(t)
		second := &rig{t: t, dir: first.dir, ends: map[string]time.Time{}}
		second.open()
		defer second.close()
		c := &concurrentCallers{t: t, services: []*rig{first, second}, owners: map[string]string{}}
		errs := make([]error, 12)
		var group sync.WaitGroup
		for i := range errs {
			caller := sandbox.Principal{KeyID: fmt.Sprintf("key%d", i%4)}
			group.Go(func() { errs[i] = c.caller(uint64(i), caller) })
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		for id, owner := range c.owners {
			if err := first.Forget(t.Context(), sandbox.Principal{KeyID: owner}, id); err != nil && fault.KindOf(err) != fault.NotFound {
				t.Error(err)
			}
		}
		hosttest.Eventually(t, "all has stopped", func() bool {
			held, err := first.engine.List(t.Context())
			_, live := first.Live(firstKey(c.owners))
			return err == nil && len(held) == 0 && !live
		})
		first.wantNothingLeft()
	})
	hosttest.Eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

func firstKey(m map[string]string) string {
	for k := range m {
		return k
	}
	return ""
}

// P10: ten thousand sandboxes are listed in pages, each once and in order.
func TestListOfTenThousand(t *testing.T) {
	n := 10_000
	if raceDetector {
		n = 1000 // SQLite in Go is forty times slower with the race detector
	}
	r := newRig(t)
	started := time.Now().Add(-time.Hour)
	for i := range n {
		// Groups of ten start at the same moment, so that the ID decides the order.
		sb := sandbox.Sandbox{
			ID: fmt.Sprintf("i%019d", i), Owner: "alice", State: sandbox.Stopped, StartedAt: started.Add(time.Duration(i/10) * time.Millisecond),
			StoppedAt: time.Now(), Metadata: map[string]string{"n": fmt.Sprint(i % 8), "all": "yes"}, TemplateID: templateID,
		}
		if err := r.store.Insert(t.Context(), sandbox.Row{Sandbox: sb}, n+1); err != nil {
			t.Fatal(err)
		}
	}
	for _, ascending := range []bool{false, true} {
		start := time.Now()
		got := r.listAll(sandbox.Filter{Ascending: ascending})
		if took := time.Since(start); took > hosttest.Patience(hosttest.Hang) {
			t.Errorf("listing took %v", took)
		}
		ids := make([]string, len(got))
		for i, sb := range got {
			ids[i] = sb.ID
		}
		order := strings.Compare
		if !ascending {
			order = func(a, b string) int { return strings.Compare(b, a) }
		}
		if len(ids) != n || !slices.IsSortedFunc(ids, order) || len(slices.Compact(ids)) != n {
			t.Errorf("ascending %t: %d sandboxes, sorted %t", ascending, len(ids), slices.IsSortedFunc(ids, order))
		}
	}
	for name, tc := range map[string]struct {
		filter sandbox.Filter
		want   int
	}{
		"metadata":         {sandbox.Filter{Metadata: map[string]string{"n": "3", "all": "yes"}}, n / 8},
		"other value":      {sandbox.Filter{Metadata: map[string]string{"n": "3", "all": "no"}}, 0},
		"hostile metadata": {sandbox.Filter{Metadata: map[string]string{"n": "3' OR '1'='1"}}, 0},
		"started after":    {sandbox.Filter{StartedAfter: started.Add(time.Duration(n/10-10) * time.Millisecond)}, 100},
		"template":         {sandbox.Filter{TemplateID: "other"}, 0},
		"state":            {sandbox.Filter{States: []sandbox.State{sandbox.Running, sandbox.Creating}}, 0},
	} {
		if got := r.listAll(tc.filter); len(got) != tc.want {
			t.Errorf("%s: %d sandboxes, want %d", name, len(got), tc.want)
		}
	}
	for _, limit := range []int{-1, 101} {
		_, err := r.List(t.Context(), alice, sandbox.Filter{Limit: limit})
		wantKind(t, err, fault.Invalid, "limit_invalid")
	}
}

// listAll follows the pages to their end.
func (r *rig) listAll(f sandbox.Filter) []sandbox.Sandbox {
	r.t.Helper()
	var out []sandbox.Sandbox
	for {
		page, err := r.List(r.t.Context(), alice, f)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, page.Sandboxes...)
		if !page.More {
			return out
		}
		last := page.Sandboxes[len(page.Sandboxes)-1]
		f.AfterTime, f.AfterID = last.StartedAt, last.ID
	}
}
