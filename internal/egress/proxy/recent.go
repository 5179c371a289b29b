package proxy

import (
	"sync"
	"time"
)

// maxRecent limits the stored keys, because a sandbox controls them.
const maxRecent = 256

// recent stores keys for a limited time. The zero value is ready for use.
type recent[K comparable] struct {
	mu    sync.Mutex
	until map[K]time.Time
}

// add stores a key. If there are too many, it removes all others.
func (r *recent[K]) add(key K, life time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil || len(r.until) >= maxRecent {
		r.until = map[K]time.Time{}
	}
	r.until[key] = time.Now().Add(life)
}

// has reports whether a key was added and has not expired.
func (r *recent[K]) has(key K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.until[key]
	return ok && time.Now().Before(until)
}
