package pullthrough

import (
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// Entries reads the entry of a stored document without its content. A Storage can have it.
type Entries interface {
	Entry(key string) (store.Entry, error)
}

// maxWeight limits the remembered indexes of packages together, in versions. A version takes about
// half a kilobyte, and a project of 500 packages has some 60,000.
const maxWeight = 100_000

// weighed is a parsed document with a weight. The documents of a whole project are remembered, as
// far as the sum of their weights permits, because each of its files needs one.
type weighed interface{ Weight() int }

// weighedIndexes are remembered documents, by ecosystem and key. The caller synchronises it.
type weighedIndexes struct {
	all   map[string]weighed
	total int
}

// keep remembers a document, and forgets others beyond the limit. One that is larger than the limit
// is not remembered.
func (w *weighedIndexes) keep(key string, index weighed) {
	w.forget(key)
	if index.Weight() > maxWeight {
		return
	}
	for other := range w.all {
		if w.total+index.Weight() <= maxWeight {
			break
		}
		w.forget(other)
	}
	if w.all == nil {
		w.all = map[string]weighed{}
	}
	w.all[key] = index
	w.total += index.Weight()
}

func (w *weighedIndexes) forget(key string) {
	if old, ok := w.all[key]; ok {
		w.total -= old.Weight()
		delete(w.all, key)
	}
}

// Fresh implements packages.Source.
func (s *session) Fresh(q packages.Query) (string, bool) {
	entries, ok := s.cache.storage.(Entries)
	if !ok || q.Check != nil || q.Bypass || q.Digest.Algorithm != "" {
		return "", false
	}
	e, err := entries.Entry(q.URL)
	if err != nil || !s.request.Offline && s.cache.now().Sub(e.Fetched) >= lifeOf(q) {
		return "", false
	}
	return e.SHA256, true
}
