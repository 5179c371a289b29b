package approval_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
)

func TestQuorumCountsDifferentPeople(t *testing.T) {
	r := newRig(t, t.TempDir())
	owner := approval.Caller{KeyID: "k1"}
	q := postRequest()
	q.Quorum = 2
	first := r.ask(q)
	a, err := r.Approve(t.Context(), owner, first.Approval, "mine", false)
	if err != nil || a.State != approval.Pending || a.Grants() != 1 {
		t.Fatalf("after one vote: got %+v %v, want pending", a, err)
	}
	_, err = r.Approve(t.Context(), owner, first.Approval, "mine again", false)
	wantCode(t, err, "already_voted")
	if a := r.askWithoutGrant(q); a.Granted {
		t.Error("one vote was enough for a quorum of two")
	}
	if a, err = r.Approve(t.Context(), local, first.Approval, "", false); err != nil || a.State != approval.Approved || a.Grants() != 2 {
		t.Fatalf("after two votes: got %+v %v, want approved", a, err)
	}
	if a := r.spend(q); !a.Granted {
		t.Errorf("got %+v, want the grant", a)
	}
	// One denial ends a request that several people could still approve.
	second := r.ask(q)
	if _, err := r.Approve(t.Context(), local, second.Approval, "", false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Deny(t.Context(), owner, second.Approval, "not today"); err != nil {
		t.Fatal(err)
	}
	if a := r.spend(q); a.Granted || a.State != "denied" || a.Reason != "not today" || a.Approval != second.Approval {
		t.Errorf("got %+v, want the denial with its reason", a)
	}
}

// A person who signs in to the console without a name counts as the machine's user, so that the
// console and the command line are not two people. A person with a name is another person.
func TestNamedConsoleUserIsAnotherPerson(t *testing.T) {
	r := newRig(t, t.TempDir())
	q := postRequest()
	q.Quorum = 2
	first := r.ask(q)
	if _, err := r.Approve(t.Context(), local, first.Approval, "", false); err != nil {
		t.Fatal(err)
	}
	_, err := r.Approve(t.Context(), approval.Caller{Local: true}, first.Approval, "", false)
	wantCode(t, err, "already_voted")
	a, err := r.Approve(t.Context(), approval.Caller{Local: true, Person: "Ann"}, first.Approval, "", false)
	if err != nil || a.State != approval.Approved || !slices.ContainsFunc(a.Votes, func(v approval.Vote) bool { return v.Who == "console:Ann" }) {
		t.Errorf("got %+v %v, want approved with a vote of console:Ann", a, err)
	}
	// A name is not enough: the caller must be local.
	second := r.ask(q)
	if _, err := r.Get(t.Context(), approval.Caller{Person: "Ann"}, second.Approval); err == nil {
		t.Error("a caller that is not local sees the request because of its name")
	}
}

// Promise P2 (docs/reference/promises.md): a key sees and decides only requests of its own
// sandboxes. A caller that has no key and is not the machine's user sees nothing.
func TestCallersSeeOnlyTheirOwnRequests(t *testing.T) {
	r := newRig(t, t.TempDir())
	first := r.ask(postRequest())
	mine := postRequest()
	mine.Sandbox = "mine"
	second := r.ask(mine)
	for _, caller := range []approval.Caller{{}, {KeyID: "k2"}} {
		for _, id := range []string{first.Approval, second.Approval, "a0"} {
			_, err := r.Get(t.Context(), caller, id)
			wantCode(t, err, "approval_not_found")
			_, err = r.Approve(t.Context(), caller, id, "", false)
			wantCode(t, err, "approval_not_found")
			_, err = r.Deny(t.Context(), caller, id, "no")
			wantCode(t, err, "approval_not_found")
		}
		if rows, err := r.List(t.Context(), caller, approval.Query{AllOwners: true, Owner: "k1"}); err != nil || len(rows) != 0 {
			t.Errorf("List for %+v: got %v %v, want no approvals", caller, rows, err)
		}
	}
	err := r.Watch(t.Context(), approval.Caller{}, approval.Query{}, 0, func(approval.Event) error { return errors.New("event received") })
	wantCode(t, err, "approval_not_found")
	// For comparison, the owner sees its own requests, and the machine's user sees all.
	for caller, want := range map[approval.Caller]int{{KeyID: "k1"}: 1, local: 2} {
		if rows, err := r.List(t.Context(), caller, approval.Query{}); err != nil || len(rows) != want {
			t.Errorf("List for %+v: got %d approvals, %v, want %d", caller, len(rows), err, want)
		}
	}
	if _, err := r.Approve(t.Context(), approval.Caller{KeyID: "k1"}, first.Approval, "", false); err != nil {
		t.Error(err)
	}
}

// A program cannot flood people: neither with many concurrent requests, nor with one after the
// other, nor by repeating a denied one.
func TestAskLimitsRequestsOfSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, t.TempDir())
		numbered := func(n int) egress.ApprovalRequest {
			q := postRequest()
			q.Facts["body"] = fmt.Sprint(n)
			return q
		}
		for n := range 5 {
			r.ask(numbered(n))
		}
		_, err := r.Ask(cancelledContext(t), numbered(5))
		wantCode(t, err, "too_many_questions")
		r.ask(numbered(0)) // repeating an open request does not count
		other := numbered(5)
		other.Kind = egress.AskPush
		r.ask(other)
		// Each denial allows one more request, up to a limit.
		requests := 5
		for n := 0; requests < 100; n++ {
			denied := r.ask(numbered(n))
			if _, err := r.Deny(t.Context(), local, denied.Approval, "no"); err != nil {
				t.Fatal(err)
			}
			if a := r.ask(numbered(n)); a.State != "denied" || a.Approval != denied.Approval {
				t.Fatalf("a repeated denied request: got %+v, want the denial", a)
			}
			if _, err = r.Ask(cancelledContext(t), numbered(n+5)); err != nil {
				break
			}
			requests++
		}
		wantCode(t, err, "too_many_questions")
		if requests != 20 {
			t.Errorf("%d requests were accepted, want 20", requests)
		}
		time.Sleep(11 * time.Minute)
		r.ask(numbered(1000))
		time.Sleep(30 * time.Minute)
		if a := r.ask(numbered(0)); a.State != "pending" {
			t.Errorf("got %+v, want pending: a denial must not apply after its request would have expired", a)
		}
	})
}

func TestApproveRemembersHost(t *testing.T) {
	r := newRig(t, t.TempDir())
	unlisted := func() egress.ApprovalRequest { q := postRequest(); q.Rule = "network.unlisted"; return q }
	host := func(q egress.ApprovalRequest) egress.ApprovalRequest {
		q.Kind, q.Rule = egress.AskHost, "network.unlisted"
		return q
	}
	first := r.ask(host(postRequest()))
	a, err := r.Approve(t.Context(), local, first.Approval, "", true)
	if err != nil || a.Amendment != "api.example.com:443" || !slices.Equal(r.added, []string{"box api.example.com:443"}) {
		t.Fatalf("Approve with remember: got %+v %v, amendments %v", a, err, r.added)
	}
	// The grant changed the policy, which must not invalidate the grant itself.
	pending := r.ask(postRequest())
	if err := r.Retire(t.Context(), "box", "sha256:p2", "the policy changed"); err != nil {
		t.Fatal(err)
	}
	if a := r.spend(host(postRequest())); !a.Granted {
		t.Errorf("got %+v, want the remembered grant", a)
	}
	if got, err := r.Get(t.Context(), local, pending.Approval); err != nil || got.State != approval.Expired || got.Reason != "the policy changed" {
		t.Errorf("got %+v %v, want the pending request expired by the policy change", got, err)
	}
	for name, change := range map[string]func(*egress.ApprovalRequest){
		"kind":                  func(q *egress.ApprovalRequest) { q.Kind = egress.AskPush },
		"wildcard":              func(q *egress.ApprovalRequest) { q.Facts["host"] = "*.example.com" },
		"two hosts":             func(q *egress.ApprovalRequest) { q.Facts["host"] = "a.example.com,b" },
		"port":                  func(q *egress.ApprovalRequest) { q.Facts["port"] = "0443" },
		"no port":               func(q *egress.ApprovalRequest) { delete(q.Facts, "port") },
		"quorum":                func(q *egress.ApprovalRequest) { q.Quorum = 2 },
		"rule of a listed host": func(q *egress.ApprovalRequest) { q.Rule = "host:api.example.com/write" }, // requires approval each time
	} {
		q := unlisted()
		change(&q)
		outcome := r.ask(q)
		_, err := r.Approve(t.Context(), local, outcome.Approval, "", true)
		wantCode(t, err, "not_rememberable")
		if got, err := r.Deny(t.Context(), local, outcome.Approval, "no"); err != nil || len(r.added) != 1 {
			t.Errorf("%s: Deny returned %+v %v, amendments %v, want one", name, got, err, r.added)
		}
	}
	r.fail = errors.New("disk")
	q := unlisted()
	q.Facts["path"] = "/other"
	outcome := r.ask(q)
	_, err = r.Approve(t.Context(), local, outcome.Approval, "", true)
	wantCode(t, err, "not_remembered")
	if got, err := r.Get(t.Context(), local, outcome.Approval); err != nil || got.State != approval.Approved || got.Amendment != "" {
		t.Errorf("got %+v %v, want approved without an amendment", got, err)
	}
}

// A change of the policy or of a secret ends requests and grants that were made before it.
func TestRetireEndsRequestsAndGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, t.TempDir())
		granted := r.ask(postRequest())
		r.approve(granted.Approval)
		if err := r.Retire(t.Context(), "box", "sha256:p1", "same policy"); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Get(t.Context(), local, granted.Approval); err != nil || got.State != approval.Approved {
			t.Errorf("got %+v %v, want the grant to survive under the same policy", got, err)
		}
		answer := make(chan egress.ApprovalOutcome, 1)
		waiting := postRequest()
		waiting.Facts["path"] = "/b"
		go func() {
			a, err := r.Ask(t.Context(), waiting)
			if err != nil {
				t.Error(err)
			}
			answer <- a
		}()
		synctest.Wait()
		if err := r.Retire(t.Context(), "box", "", "a secret was rotated"); err != nil {
			t.Fatal(err)
		}
		if a := <-answer; a.Granted || a.State != "expired" || a.Reason != "a secret was rotated" {
			t.Errorf("got %+v, want expired by the rotation", a)
		}
		if a := r.askWithoutGrant(postRequest()); a.Granted {
			t.Error("a grant is valid after the rotation")
		}
		// A request of a sandbox that is gone cannot be approved.
		r.mu.Lock()
		delete(r.owner, "box")
		r.mu.Unlock()
		rows, err := r.List(t.Context(), local, approval.Query{States: []approval.State{approval.Pending}})
		if err != nil || len(rows) != 1 {
			t.Fatalf("pending requests: got %v %v, want one", rows, err)
		}
		_, err = r.Approve(t.Context(), local, rows[0].ID, "", false)
		wantCode(t, err, "sandbox_gone")
	})
}

// An unused grant can be revoked; a denial and a used grant cannot be changed.
func TestDenyRevokesUnusedGrant(t *testing.T) {
	r := newRig(t, t.TempDir())
	first := r.ask(postRequest())
	r.approve(first.Approval)
	_, err := r.Approve(t.Context(), approval.Caller{KeyID: "k1"}, first.Approval, "", false)
	wantCode(t, err, "approval_over")
	if _, err := r.Deny(t.Context(), local, first.Approval, "changed my mind"); err != nil {
		t.Fatal(err)
	}
	if a := r.spend(postRequest()); a.Granted || a.State != "denied" {
		t.Errorf("got %+v, want the grant revoked", a)
	}
	_, err = r.Approve(t.Context(), local, first.Approval, "", false)
	wantCode(t, err, "approval_over")
	q := postRequest()
	q.Facts["body"] = "sha256:b2"
	second := r.ask(q)
	r.approve(second.Approval)
	if a := r.spend(q); !a.Granted {
		t.Fatalf("got %+v, want the grant", a)
	}
	_, err = r.Deny(t.Context(), local, second.Approval, "too late")
	wantCode(t, err, "approval_over")
	_, err = r.Deny(t.Context(), local, second.Approval, "")
	wantCode(t, err, "reason_missing")
	if strings.Contains(r.log.String(), "changed my mind") || !strings.Contains(r.log.String(), second.Approval) {
		t.Errorf("log contains a reason or lacks the approval: %s", r.log)
	}
}

// HowToGrant names only people whose vote counts. For a sandbox of the machine's user, only a named
// console link makes a second person.
func TestHowToGrantNamesOtherPeople(t *testing.T) {
	for _, c := range []struct {
		owner  string
		quorum int
		want   string
	}{
		{"", 0, "crannog approve a1"},
		{"k1", 1, "crannog approve a1"},
		{"", 2, "2 people must approve: crannog approve a1, and " + approval.SecondPerson},
		{"k1", 3, "3 people must approve: crannog approve a1, and the holder of the sandbox's key, this server's user, or " + approval.SecondPerson},
	} {
		if got := approval.HowToGrant("a1", c.owner, c.quorum); got != c.want {
			t.Errorf("HowToGrant(%q, %d) = %q, want %q", c.owner, c.quorum, got, c.want)
		}
	}
}
