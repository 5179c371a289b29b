package session

import (
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// mostTries are the failures of one address within triesEvery. A token
	// cannot be guessed; this keeps guesses from costing us anything.
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

// may refuses an address that has failed too often.
func (t *tries) may(from string, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[t.key(from, now)] < mostTries {
		return nil
	}
	return fault.New(fault.Exhausted, "too_many_tries", "too many links from here were not valid").
		WithHint("try again in a minute")
}

func (t *tries) failed(from string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[t.key(from, now)]++
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
