package store

import (
	"maps"
	"time"

	"github.com/crannog/crannog/internal/packages"
)

// usageLife is how long a count of the entries is used. A count reads every entry, and any holder
// of a key may read metrics as often as it likes.
const usageLife = 30 * time.Second

// Stored is what the cache has of one ecosystem.
type Stored struct {
	Entries int
	// Bytes is the disk space. A content that several URLs have counts once.
	Bytes int64
}

// Usage describes the disk space of the cache, and what this process removed from it.
type Usage struct {
	Stored map[packages.Ecosystem]Stored
	Budget int64
	// Evicted is what was removed because of the budget since Open.
	Evicted Pruned
	// Damaged are the contents that Verify removed since Open.
	Damaged int
}

// usage has the figures for Usage. The Store's mutex does not protect it, so that metrics do not
// wait for a prune.
type usage struct {
	now     func() time.Time
	counted time.Time
	stored  map[packages.Ecosystem]Stored
	evicted Pruned
	damaged int
}

// Usage returns the figures of the cache. The count of the entries may be usageLife old.
func (s *Store) Usage() (Usage, error) {
	s.usageMu.Lock()
	defer s.usageMu.Unlock()
	u := &s.usage
	if now := u.now(); u.stored == nil || now.Sub(u.counted) >= usageLife {
		list, err := s.List()
		if err != nil {
			return Usage{}, err
		}
		u.stored, u.counted = storedOf(list), now
	}
	return Usage{Stored: maps.Clone(u.stored), Budget: s.budget, Evicted: u.evicted, Damaged: u.damaged}, nil
}

func storedOf(list []Listed) map[packages.Ecosystem]Stored {
	out := map[packages.Ecosystem]Stored{}
	seen := map[string]bool{}
	for _, e := range list {
		of := out[e.Ecosystem]
		of.Entries++
		if !seen[e.SHA256] {
			of.Bytes += e.Size
			seen[e.SHA256] = true
		}
		out[e.Ecosystem] = of
	}
	return out
}

// noteEvicted counts what the budget removed.
func (s *Store) noteEvicted(p Pruned) {
	s.usageMu.Lock()
	defer s.usageMu.Unlock()
	s.usage.evicted.Entries += p.Entries
	s.usage.evicted.Bytes += p.Bytes
}

// noteDamaged counts damaged contents that were removed.
func (s *Store) noteDamaged(n int) {
	s.usageMu.Lock()
	defer s.usageMu.Unlock()
	s.usage.damaged += n
}
