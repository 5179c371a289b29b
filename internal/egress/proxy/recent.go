package proxy

import (
	"sync"
	"time"
)

// mostRecent limits what is remembered of one kind, because a sandbox chooses the keys.
const mostRecent = 256

// recent remembers keys for a while. The zero value is ready for use.
type recent[K comparable] struct {
	mu    sync.Mutex
	until map[K]time.Time
}

// add remembers a key. If there are too many, all others are forgotten, and have to be shown again.
func (r *recent[K]) add(key K, life time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil || len(r.until) >= mostRecent {
		r.until = map[K]time.Time{}
	}
	r.until[key] = time.Now().Add(life)
}

// has reports whether a key was added recently enough.
func (r *recent[K]) has(key K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.until[key]
	return ok && time.Now().Before(until)
}
