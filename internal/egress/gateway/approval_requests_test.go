package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/egress"
)

// Without a controller, the request waits as long as permitted and then is not granted.
func TestApprovalIsPendingWithoutController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAttachedSandbox("box1", nil, "")
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		a, err := approver{b}.Ask(ctx, egress.ApprovalRequest{})
		if err != nil || a.Granted || a.State != statePending || a.Approval != "" || a.Reason == "" {
			t.Errorf("got %+v, %v, want pending with a reason", a, err)
		}
		if took := time.Since(begin); took != 20*time.Second {
			t.Errorf("Ask waited %v, want 20s", took)
		}
		// A request without a deadline gets one.
		begin = time.Now()
		if a, err := (approver{b}).Ask(t.Context(), egress.ApprovalRequest{}); err != nil || a.Granted || time.Since(begin) != maxWait {
			t.Errorf("got %+v, %v after %v, want pending after %v", a, err, time.Since(begin), maxWait)
		}
	})
}

func TestApprovalEndsWithSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAttachedSandbox("box1", nil, "")
		b.records = &recorder{closed: true}
		done := make(chan error)
		go func() {
			_, err := approver{b}.Ask(t.Context(), egress.ApprovalRequest{})
			done <- err
		}()
		synctest.Wait()
		b.close()
		if err := <-done; err == nil {
			t.Error("a request of a closed sandbox got no error")
		}
	})
}

func TestOpenApprovalsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newAttachedSandbox("box1", nil, "")
		var wait sync.WaitGroup
		for range maxOpenApprovals {
			wait.Go(func() { _, _ = approver{b}.Ask(t.Context(), egress.ApprovalRequest{}) })
		}
		synctest.Wait()
		begin := time.Now()
		if a, err := (approver{b}).Ask(t.Context(), egress.ApprovalRequest{}); err != nil || a.Granted || a.State != statePending || time.Since(begin) != 0 {
			t.Errorf("one request above the limit: got %+v, %v after %v, want pending at once", a, err, time.Since(begin))
		}
		wait.Wait()
		if n := b.asking.Load(); n != 0 {
			t.Errorf("%d requests are still counted, want 0", n)
		}
	})
}

// If a controller is killed while it decides a request, the next controller gets the request.
func TestNextControllerGetsApproval(t *testing.T) {
	b := newAttachedSandbox("box1", nil, "")
	asked := make(chan *peer)
	join := func(answer *egress.ApprovalOutcome) *peer {
		ours, theirs := pair(t)
		var there *peer
		there = newPeer(theirs, false, func(ctx context.Context, _ string, _ json.RawMessage, _ []*os.File) (any, error) {
			asked <- there
			if answer == nil {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return *answer, nil
		})
		here := newPeer(ours, true, nil)
		go func() { _ = there.serve() }()
		go func() { _ = here.serve() }()
		b.adopt(here)
		return there
	}
	first := join(nil)
	type result struct {
		answer egress.ApprovalOutcome
		err    error
	}
	got := make(chan result, 1)
	go func() {
		a, err := approver{b}.Ask(t.Context(), egress.ApprovalRequest{})
		got <- result{a, err}
	}()
	if p := <-asked; p != first {
		t.Fatal("the request went to another controller than the first")
	}
	first.conn.Close()
	second := join(&egress.ApprovalOutcome{Granted: true, Approval: "a1", State: "approved"})
	if p := <-asked; p != second {
		t.Fatal("the request went to another controller than the second")
	}
	if r := <-got; r.err != nil || !r.answer.Granted {
		t.Errorf("got %+v, %v, want the grant", r.answer, r.err)
	}
}

// If the requester stops waiting, the request is withdrawn.
func TestCanceledApprovalIsWithdrawn(t *testing.T) {
	ours, theirs := pair(t)
	withdrawn := make(chan error, 1)
	started := make(chan struct{})
	there := newPeer(theirs, false, func(ctx context.Context, _ string, _ json.RawMessage, _ []*os.File) (any, error) {
		close(started)
		<-ctx.Done()
		withdrawn <- ctx.Err()
		return nil, ctx.Err()
	})
	here := newPeer(ours, true, nil)
	go func() { _ = there.serve() }()
	go func() { _ = here.serve() }()
	b := newAttachedSandbox("box1", nil, "")
	b.adopt(here)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	a, err := approver{b}.Ask(ctx, egress.ApprovalRequest{})
	if a.Granted {
		t.Errorf("got %+v, %v, want no grant", a, err)
	}
	if err := <-withdrawn; !errors.Is(err, context.Canceled) {
		t.Errorf("the controller's context ended with %v, want Canceled", err)
	}
}
