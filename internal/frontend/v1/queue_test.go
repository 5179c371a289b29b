package v1

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// fakeQueue is a queue in which one request waits.
type fakeQueue struct{}

func (fakeQueue) Queue(_ context.Context, caller sandbox.Principal) (lifecycle.Queue, error) {
	return lifecycle.Queue{
		Status:    admission.Status{AtOnce: 2, Starting: 2, Waiting: 1, MaxWaiting: 10, ServiceTime: time.Second, Wait: 1500 * time.Millisecond, Totals: admission.Totals{Refused: 3}},
		Positions: []admission.Position{{Label: caller.KeyID, Sandbox: "i1", Number: 1, Expected: 500 * time.Millisecond}},
	}, nil
}

func (r *rig) withQueue(q Queue) *rig {
	r.deps.Queue = q
	return r.with(r.deps)
}

type fakeFigures struct{}

func (fakeFigures) Families(context.Context) ([]metrics.Family, error) {
	return []metrics.Family{metrics.One("crannog_starts_waiting", metrics.Gauge, "Waiting.", 1)}, nil
}

func TestQueueAndMetrics(t *testing.T) {
	r := newRig(t).withQueue(fakeQueue{})
	var q api.Queue
	if code, _ := r.call("GET", "/v1/queue", "", &q); code != 200 || q.AtOnce != 2 || q.Waiting != 1 || q.WaitSeconds != 1.5 || q.Refused != 3 ||
		len(q.Requests) != 1 || q.Requests[0] != (api.QueuedStart{RequestID: "k1", SandboxID: "i1", Place: 1, ExpectedSeconds: 0.5}) {
		t.Errorf("GET /v1/queue: got %d %+v", code, q)
	}
	r.deps.Figures = fakeFigures{}
	r.with(r.deps)
	req := httptest.NewRequest("GET", "/v1/metrics", nil)
	req.Header.Set("X-Api-Key", secret)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	for _, line := range []string{"# TYPE crannog_starts_waiting gauge", "crannog_starts_waiting 1"} {
		if !strings.Contains("\n"+w.Body.String(), "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, w.Body)
		}
	}
	if ct := w.Header().Get("Content-Type"); !strings.HasPrefix(ct, "text/plain; version=0.0.4") {
		t.Errorf("content type %q", ct)
	}
}

// overloadedLifetimes refuses every creation, and records the deadline that it would have had.
type overloadedLifetimes struct {
	Lifetimes
	deadline time.Time
}

func (b *overloadedLifetimes) Create(ctx context.Context, _ sandbox.Principal, _ sandbox.CreateRequest) (sandbox.Sandbox, error) {
	b.deadline, _ = ctx.Deadline()
	return sandbox.Sandbox{}, fault.New(fault.Exhausted, admission.CodeOverloaded, "too many wait").WithRetryAfter(11500 * time.Millisecond)
}

func TestOverloadHasRetryAfter(t *testing.T) {
	r := newRig(t)
	b := &overloadedLifetimes{}
	r.deps.Lifetimes = b
	r.with(r.deps)
	for _, c := range []struct {
		timeout string
		code    int
	}{{"", 429}, {"60000", 429}, {"0", 400}, {"1e9", 400}, {"-1", 400}, {"99999999999999999999", 400}} {
		req := httptest.NewRequest("POST", "/v1/sandboxes", strings.NewReader("{}"))
		req.Header.Set("X-Api-Key", secret)
		req.Header.Set("Content-Type", "application/json")
		if c.timeout != "" {
			req.Header.Set(api.TimeoutHeader, c.timeout)
		}
		w := httptest.NewRecorder()
		b.deadline = time.Time{}
		r.handler.ServeHTTP(w, req)
		if w.Code != c.code {
			t.Errorf("timeout %q: %d %s", c.timeout, w.Code, w.Body)
		}
		if w.Code != http.StatusTooManyRequests {
			continue
		}
		if after := w.Header().Get("Retry-After"); after != "12" || !strings.Contains(w.Body.String(), `"retry_after_seconds":12`) {
			t.Errorf("Retry-After %q, %s", after, w.Body)
		}
		if has := !b.deadline.IsZero(); has != (c.timeout != "") {
			t.Errorf("timeout %q: deadline %s", c.timeout, b.deadline)
		}
	}
}
