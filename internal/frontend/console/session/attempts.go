package session

import (
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxFailures is the number of failures of one address within failureWindow that get an audit
	// entry. Tokens cannot be guessed, but guesses must not fill the audit log.
	maxFailures   = 10
	failureWindow = time.Minute
	// maxAddresses bounds the number of counted addresses. All others share one count.
	maxAddresses = 1024
)

// attempts counts failed attempts to sign in, by address.
type attempts struct {
	mu    sync.Mutex
	since time.Time
	count map[string]int
}

// failed counts a failure, and returns an error once an address has failed too often. Later
// attempts are then refused without a check and without an audit entry.
func (t *attempts) failed(from string, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.key(from, now)
	if t.count[key] < maxFailures {
		t.count[key]++
		return nil
	}
	return fault.New(fault.Exhausted, "too_many_tries", "too many invalid links from this address").
		WithHint("a valid link still works; crannog console creates one").WithRetryAfter(t.since.Add(failureWindow).Sub(now))
}

// key returns the key under which an address is counted. The caller holds t.mu.
func (t *attempts) key(from string, now time.Time) string {
	if t.count == nil || now.Sub(t.since) >= failureWindow {
		t.since, t.count = now, map[string]int{}
	}
	if _, known := t.count[from]; !known && len(t.count) >= maxAddresses {
		return ""
	}
	return from
}
