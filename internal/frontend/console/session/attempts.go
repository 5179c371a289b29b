package session

import (
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// mostTries are the failures of one address within triesEvery. A token
	// cannot be guessed; this keeps guesses from filling the record.
	mostTries  = 10
	triesEvery = time.Minute
	// mostAddresses bounds what is remembered. All others share one count.
	mostAddresses = 1024
)

// tries counts failed tries to sign in.
type tries struct {
	mu    sync.Mutex
	since time.Time
	count map[string]int
}

// failed counts a failure, and returns an error once an address has failed too
// often: one that its answers and their record are spared by.
func (t *tries) failed(from string, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.key(from, now)
	if t.count[key] < mostTries {
		t.count[key]++
		return nil
	}
	return fault.New(fault.Exhausted, "too_many_tries", "too many links from here were not valid").
		WithHint("a valid one still works; crannog console makes one").WithRetryAfter(t.since.Add(triesEvery).Sub(now))
}

// key is under what an address is counted. t.mu is held.
func (t *tries) key(from string, now time.Time) string {
	if t.count == nil || now.Sub(t.since) >= triesEvery {
		t.since, t.count = now, map[string]int{}
	}
	if _, known := t.count[from]; !known && len(t.count) >= mostAddresses {
		return ""
	}
	return from
}
