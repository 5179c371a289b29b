package approval_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var local = approval.Caller{Local: true}

// rig is a service on a real store.
type rig struct {
	audit auditLog
	*approval.Service
	t     *testing.T
	dir   string
	log   *journal
	mu    sync.Mutex
	owner map[string]string // live sandboxes
	added []string          // amendments
	fail  error             // of the next amendment
}

// journal is a log buffer for concurrent writers and readers.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newRig(t *testing.T, dir string) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, log: &journal{}, owner: map[string]string{"box": "k1", "mine": ""}}
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Service, err = approval.New(approval.Options{
		Store: st, Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Lookup: func(id string) (string, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			o, ok := r.owner[id]
			return o, ok
		},
		Record: r.record,
		Amend: func(_ context.Context, id, endpoint string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.added = append(r.added, id+" "+endpoint)
			return r.fail
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func postRequest() egress.ApprovalRequest {
	return egress.ApprovalRequest{
		Sandbox: "box", Kind: egress.AskRequest, Summary: "POST to api.example.com", Rule: "host:api.example.com/write", Policy: "sha256:p1",
		Facts: map[string]string{
			"method": "POST", "host": "api.example.com", "port": "443", "path": "/a", "query": "x=1",
			"header:content-type": "application/json", "body": "sha256:b1", "secret_GITHUB_TOKEN": "generation 1",
		},
	}
}

// cancelledContext returns a cancelled context, for requests that do not wait.
func cancelledContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// ask makes a request without waiting.
func (r *rig) ask(q egress.ApprovalRequest) egress.ApprovalOutcome {
	r.t.Helper()
	a, err := r.Ask(cancelledContext(r.t), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// spend makes a request and waits long enough to use an existing grant, even on a busy machine. An
// existing decision ends it at once.
func (r *rig) spend(q egress.ApprovalRequest) egress.ApprovalOutcome {
	r.t.Helper()
	return r.waitFor(q, hosttest.Patience(20*time.Second))
}

// askWithoutGrant makes a request that must not find a grant. If there were one, it would wait long
// enough to use it.
func (r *rig) askWithoutGrant(q egress.ApprovalRequest) egress.ApprovalOutcome {
	r.t.Helper()
	return r.waitFor(q, 200*time.Millisecond)
}

func (r *rig) waitFor(q egress.ApprovalRequest, limit time.Duration) egress.ApprovalOutcome {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	a, err := r.Ask(ctx, q)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) approve(id string) {
	r.t.Helper()
	if _, err := r.Approve(r.t.Context(), local, id, "", false); err != nil {
		r.t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("error %v, code %q; want %q", err, fault.CodeOf(err), code)
	}
}

// Threat A1 (docs/reference/threat-model.md): a grant covers exactly what was displayed, and
// another action does not use it up.
func TestGrantCoversOnlyItsRequest(t *testing.T) {
	r := newRig(t, t.TempDir())
	first := r.ask(postRequest())
	if first.State != "pending" || first.Granted || first.Approval == "" {
		t.Fatalf("Ask returned %+v, want a pending request", first)
	}
	r.approve(first.Approval)
	changes := map[string]func(*egress.ApprovalRequest){
		"kind":                      func(q *egress.ApprovalRequest) { q.Kind = egress.AskPush },
		"rule":                      func(q *egress.ApprovalRequest) { q.Rule += "x" },
		"policy":                    func(q *egress.ApprovalRequest) { q.Policy = "sha256:p2" },
		"missing fact":              func(q *egress.ApprovalRequest) { delete(q.Facts, "query") },
		"added fact":                func(q *egress.ApprovalRequest) { q.Facts["extra"] = "" },
		"bytes moved between facts": func(q *egress.ApprovalRequest) { q.Facts["path"], q.Facts["query"] = "/ax=1", "" },
		"sandbox":                   func(q *egress.ApprovalRequest) { q.Sandbox = "mine" },
	}
	for name := range postRequest().Facts {
		changes["fact "+name] = func(q *egress.ApprovalRequest) { q.Facts[name] += "0" }
	}
	for name, change := range changes {
		q := postRequest()
		change(&q)
		if approval.Digest(q) == approval.Digest(postRequest()) {
			t.Errorf("%s is not in the digest", name)
		}
	}
	for _, name := range []string{"fact body", "fact path", "fact header:content-type", "fact secret_GITHUB_TOKEN"} {
		q := postRequest()
		changes[name](&q)
		answer := r.askWithoutGrant(q)
		if answer.Granted || answer.Approval == first.Approval {
			t.Errorf("%s changed: got %+v, want a new request without a grant", name, answer)
		}
		if _, err := r.Deny(t.Context(), local, answer.Approval, "no"); err != nil {
			t.Error(err)
		}
	}
	// Control: exactly the same request uses the grant, once.
	if a := r.spend(postRequest()); !a.Granted || a.State != "approved" || a.Approval != first.Approval {
		t.Errorf("the same request got %+v, want the grant %s", a, first.Approval)
	}
	if a := r.askWithoutGrant(postRequest()); a.Granted || a.Approval == first.Approval {
		t.Errorf("a second use of the grant got %+v, want a new request", a)
	}
}

// The summary is for display, so a grant does not depend on it.
func TestDigestExcludesSummary(t *testing.T) {
	a, b := postRequest(), postRequest()
	b.Summary = "other"
	if approval.Digest(a) != approval.Digest(b) {
		t.Error("the digest depends on the summary")
	}
	b.Facts = maps.Clone(a.Facts)
	if approval.Digest(a) != approval.Digest(b) {
		t.Error("requests with equal facts have different digests")
	}
}

// Threat A2 (docs/reference/threat-model.md): of any number of concurrent callers exactly one gets
// the grant, also across processes with one store.
func TestConcurrentCallersUseGrantOnce(t *testing.T) {
	dir := t.TempDir()
	rigs := []*rig{newRig(t, dir), newRig(t, dir)}
	first := rigs[0].ask(postRequest())
	rigs[1].approve(first.Approval)
	ctx, cancel := context.WithCancel(t.Context())
	type result struct {
		egress.ApprovalOutcome
		err error
	}
	results := make(chan result, 100)
	start := make(chan struct{})
	for i := range 100 {
		go func() {
			<-start
			a, err := rigs[i%2].Ask(ctx, postRequest())
			results <- result{a, err}
		}()
	}
	close(start)
	granted := <-results
	if granted.err != nil || !granted.Granted || granted.Approval != first.Approval {
		t.Fatalf("got %+v, want the grant %s", granted, first.Approval)
	}
	cancel()
	for range 99 {
		if a := <-results; a.err != nil || a.Granted {
			t.Errorf("a further caller got %+v, want no grant", a)
		}
	}
}

// Threat A2 (docs/reference/threat-model.md): if two callers have both read the grant, the store
// lets one use it, and only for the same request and before it expires.
func TestStoreSpendsGrantOnce(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, dir)
	q := postRequest()
	id := r.ask(q).Approval
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	spend := func(digest string, at time.Time) bool {
		t.Helper()
		ok, err := st.SpendApproval(t.Context(), id, digest, at)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	now, digest := time.Now(), approval.Digest(q)
	if spend(digest, now) {
		t.Error("a request was spent before its approval")
	}
	r.approve(id)
	other := postRequest()
	other.Facts["body"] = "sha256:b2"
	if spend(approval.Digest(other), now) {
		t.Error("a grant was spent for another request")
	}
	if spend(digest, now.Add(time.Hour)) {
		t.Error("a grant was spent after it expired")
	}
	if !spend(digest, now) {
		t.Error("the first caller could not spend the grant")
	}
	if spend(digest, now) {
		t.Error("a grant was spent twice")
	}
}

// If several callers wait with the same request, one grant serves one of them, and the others
// continue to wait.
func TestGrantWakesOneWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, t.TempDir())
		answers := make(chan egress.ApprovalOutcome, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 3 {
			go func() {
				a, err := r.Ask(ctx, postRequest())
				if err != nil {
					t.Error(err)
				}
				answers <- a
			}()
		}
		synctest.Wait()
		if rows, err := r.List(t.Context(), local, approval.Query{}); err != nil || len(rows) != 1 {
			t.Fatalf("equal requests are stored as %d rows, want 1: %v", len(rows), err)
		} else {
			r.approve(rows[0].ID)
		}
		first := <-answers
		if !first.Granted {
			t.Errorf("the first waiter got %+v, want the grant", first)
		}
		started := time.Now()
		for range 2 {
			if a := <-answers; a.Granted || a.State != "pending" || a.Approval == first.Approval {
				t.Errorf("another waiter got %+v, want a new pending request", a)
			}
		}
		if time.Since(started) < 50*time.Second {
			t.Error("the other waiters returned before their context ended")
		}
	})
}

// Threat A5 (docs/reference/threat-model.md): a request without a decision expires, by the time in
// the store.
func TestRequestAndUnusedGrantExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, t.TempDir())
		q := postRequest()
		q.Expiry = 90
		started := time.Now()
		a, err := r.Ask(t.Context(), q)
		if took := time.Since(started); err != nil || a.Granted || a.State != "expired" || took < 90*time.Second || took > 92*time.Second {
			t.Errorf("got %+v %v after %v, want expired after 90s", a, err, took)
		}
		_, err = r.Approve(t.Context(), local, a.Approval, "", false)
		wantCode(t, err, "approval_over")
		// An unused grant ends as well.
		second := r.ask(q)
		if second.Approval == a.Approval {
			t.Error("a new request got the ID of an expired one")
		}
		r.approve(second.Approval)
		time.Sleep(91 * time.Second)
		if a := r.ask(q); a.Granted || a.Approval == second.Approval {
			t.Errorf("got %+v, want a new request because the grant has expired", a)
		}
		if got, err := r.Get(t.Context(), local, second.Approval); err != nil || got.State != approval.Expired {
			t.Errorf("got %+v %v, want an expired request", got, err)
		}
	})
}

// Threat A5 (docs/reference/threat-model.md): a request outlives the process that made it, and the
// retry uses a grant that was given in between.
func TestPendingRequestSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	one := newRig(t, dir)
	first := one.ask(postRequest())
	one.Close()
	two := newRig(t, dir)
	if a := two.ask(postRequest()); a.State != "pending" || a.Approval != first.Approval {
		t.Fatalf("after a restart got %+v, want the pending request %s", a, first.Approval)
	}
	two.approve(first.Approval)
	three := newRig(t, dir)
	// A caller that has disconnected uses no grant.
	if a := three.ask(postRequest()); a.Granted || a.State != "pending" {
		t.Errorf("a disconnected caller got %+v, want a pending request", a)
	}
	if a := three.spend(postRequest()); !a.Granted || a.Approval != first.Approval {
		t.Errorf("got %+v, want the grant %s", a, first.Approval)
	}
}

// A waiter notices a decision by another process.
func TestAskReceivesDecisionOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	server, other := newRig(t, dir), newRig(t, dir)
	first := server.ask(postRequest())
	answer := make(chan egress.ApprovalOutcome, 1)
	go func() {
		a, err := server.Ask(t.Context(), postRequest())
		if err != nil {
			t.Error(err)
		}
		answer <- a
	}()
	other.approve(first.Approval)
	select {
	case a := <-answer:
		if !a.Granted {
			t.Errorf("got %+v, want the grant", a)
		}
	case <-hosttest.Late():
		t.Fatal("a decision by another process did not wake the waiter")
	}
}

func TestCloseEndsAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, t.TempDir())
		ended := make(chan error, 1)
		go func() {
			a, err := r.Ask(t.Context(), postRequest())
			if a.State != "pending" {
				err = errors.Join(err, fmt.Errorf("state %s", a.State))
			}
			ended <- err
		}()
		synctest.Wait()
		r.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A request that a person could not judge is an error, and so is a request of a sandbox without an
// owner.
func TestAskRejectsInvalidRequests(t *testing.T) {
	r := newRig(t, t.TempDir())
	for name, change := range map[string]func(*egress.ApprovalRequest){
		"no sandbox":                         func(q *egress.ApprovalRequest) { q.Sandbox = "" },
		"unknown kind":                       func(q *egress.ApprovalRequest) { q.Kind = "net.everything" },
		"no rule":                            func(q *egress.ApprovalRequest) { q.Rule = "" },
		"no policy":                          func(q *egress.ApprovalRequest) { q.Policy = "" },
		"no facts":                           func(q *egress.ApprovalRequest) { q.Facts = nil },
		"invisible character in a fact name": func(q *egress.ApprovalRequest) { q.Facts["ho\u200bst"] = "x" },
		"facts too large":                    func(q *egress.ApprovalRequest) { q.Facts["body"] = string(make([]byte, 1<<20)) },
		"negative quorum":                    func(q *egress.ApprovalRequest) { q.Quorum = -1 },
		"expiry too long":                    func(q *egress.ApprovalRequest) { q.Expiry = 1 << 40 },
	} {
		q := postRequest()
		change(&q)
		if a, err := r.Ask(t.Context(), q); fault.CodeOf(err) != "question_invalid" || a.Granted {
			t.Errorf("%s: got %+v %v, want question_invalid", name, a, err)
		}
	}
	q := postRequest()
	q.Sandbox = "gone"
	_, err := r.Ask(t.Context(), q)
	wantCode(t, err, "sandbox_not_found")
}

func FuzzDigest(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("a", "1", "a", "2")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		one, two := postRequest(), postRequest()
		one.Facts, two.Facts = map[string]string{k1: v1, k2: v2}, map[string]string{k1: v2, k2: v1}
		if same := approval.Digest(one) == approval.Digest(two); same != maps.Equal(one.Facts, two.Facts) {
			t.Fatalf("facts %v and %v have equal digests: %v", one.Facts, two.Facts, same)
		}
	})
}
