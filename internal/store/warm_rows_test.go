package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

func warmRow(id string) sandbox.Row {
	return sandbox.Row{ControlToken: "control", Process: sandbox.Process{PID: 1, Start: "x"}, Sandbox: sandbox.Sandbox{
		ID: id, State: sandbox.Waiting, StartedAt: time.Unix(1, 0).UTC(), AccessToken: "unseen",
	}}
}

// TestAcquireAssignsWarmRowOnce checks that one of several callers acquires a warm sandbox, and
// that its row then has only that caller's values.
func TestAcquireAssignsWarmRowOnce(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	id := "i0000000000000000001"
	if err := s.Insert(ctx, warmRow(id), 1); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Find(ctx, "i000", sandbox.Principal{Local: true}); err != nil || len(found) != 0 {
		t.Errorf("Find by prefix returns the warm sandbox: %v, %v", found, err)
	}
	if rows, err := s.List(ctx, sandbox.Query{AllOwners: true}); err != nil || len(rows) != 0 {
		t.Errorf("List returns the warm sandbox: %v, %v", rows, err)
	}
	if rows, err := s.List(ctx, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Waiting}}}); err != nil || len(rows) != 1 {
		t.Errorf("List of waiting rows: got %v, %v; want one", rows, err)
	}
	var won atomic.Int32
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			r := warmRow(id)
			r.State, r.Owner, r.Name, r.AccessToken = sandbox.Running, fmt.Sprint("owner", n), "web", fmt.Sprint("token", n)
			ok, err := s.Acquire(ctx, r, 1)
			if err != nil {
				t.Error(err)
			}
			if ok {
				won.Add(1)
			}
		})
	}
	group.Wait()
	r, err := s.Get(ctx, id)
	if err != nil || won.Load() != 1 || r.State != sandbox.Running || r.AccessToken != "token"+r.Owner[len("owner"):] {
		t.Errorf("acquired %d times, want once: %+v, %v", won.Load(), r, err)
	}

	// The limit and the names of live sandboxes are enforced, and otherwise the sandbox stays warm.
	other := warmRow("i0000000000000000002")
	if err := s.Insert(ctx, other, 9); err != nil {
		t.Fatal(err)
	}
	other.State, other.Owner = sandbox.Running, r.Owner
	if ok, err := s.Acquire(ctx, other, 1); ok || fault.CodeOf(err) != "too_many_sandboxes" {
		t.Errorf("Acquire at the limit: got %t, %v", ok, err)
	}
	other.Name = "web"
	if ok, err := s.Acquire(ctx, other, 2); ok || fault.CodeOf(err) != "sandbox_name_taken" {
		t.Errorf("Acquire with a taken name: got %t, %v", ok, err)
	}
	other.Name = ""
	if ok, err := s.Acquire(ctx, other, 2); !ok || err != nil {
		t.Errorf("Acquire without obstacles: got %t, %v; want true", ok, err)
	}
	if ok, err := s.Acquire(ctx, warmRow("i0000000000000000003"), 9); ok || err != nil {
		t.Errorf("Acquire of an unknown sandbox: got %t, %v; want false", ok, err)
	}
}
