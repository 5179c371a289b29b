package observe

import (
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
)

// For each sandbox, up to maxRefused requests without a valid token in refusedInterval get an entry
// each, and further ones are counted. Otherwise an attacker who knows an ID could fill the disk.
const (
	refusedInterval = time.Minute
	maxRefused      = 10
)

// refusedRequests counts the refused requests of one sandbox while its timer runs.
type refusedRequests struct {
	count int64
	timer *time.Timer
}

// recordUnauthorized wraps the visit of a request without the sandbox's token. An entry is written
// if the request is refused.
func (t *Tap) recordUnauthorized(r *http.Request, c Call, where string, v *Visit) *Visit {
	do := r.Method + " " + short(where, c.Mask.Record())
	next := &Visit{answer: func(*http.Response) error { return nil }, done: func() {}}
	if v != nil {
		next.answer, next.done = v.answer, v.Done
	}
	answer := next.answer
	next.answer = func(res *http.Response) error {
		if res.StatusCode == http.StatusUnauthorized {
			t.recordRefused(c.Sandbox, do, "unauthenticated")
		}
		return answer(res)
	}
	return next
}

// TurnedAway writes an entry about a refused request to a sandbox's port. It omits the path, which
// belongs to a program and may contain a credential. A nil Tap writes nothing.
func (t *Tap) TurnedAway(sandbox, method string, port int) {
	if t != nil {
		t.recordRefused(sandbox, fmt.Sprintf("%.20s port %d", method, port), "denied")
	}
}

func (t *Tap) recordRefused(sandbox, do, outcome string) {
	t.mu.Lock()
	n := t.denied[sandbox]
	if n == nil {
		n = &refusedRequests{}
		n.timer = time.AfterFunc(refusedInterval, func() { t.writeRefused(sandbox, n) })
		t.denied[sandbox] = n
	}
	n.count++
	full := n.count > maxRefused
	t.mu.Unlock()
	if !full {
		t.note(audit.Draft{Kind: audit.Action, Sandbox: sandbox, Actor: audit.Anonymous, Data: payload.Action{Do: do, Outcome: outcome}})
	}
}

// writeRefused writes an entry with the number of refused requests that have no entry of their own.
func (t *Tap) writeRefused(sandbox string, n *refusedRequests) {
	t.mu.Lock()
	mine := t.denied[sandbox] == n
	if mine {
		delete(t.denied, sandbox)
	}
	t.mu.Unlock()
	n.timer.Stop()
	if over := n.count - maxRefused; mine && over > 0 {
		t.note(audit.Draft{Kind: audit.Action, Sandbox: sandbox, Actor: audit.Anonymous, Data: payload.Action{Do: "refused", Outcome: "too_many", Count: over}})
	}
}

// writeAllRefused writes the entries of all sandboxes when the Tap is closed.
func (t *Tap) writeAllRefused() {
	t.mu.Lock()
	all := maps.Clone(t.denied)
	t.mu.Unlock()
	for id, n := range all {
		t.writeRefused(id, n)
	}
}
