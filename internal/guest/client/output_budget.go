package client

import "sync"

// Budget limits the memory for the output of all calls together. The limit of each call alone would
// not be enough, because many calls together would exceed the server's memory. Most commands print
// little, so memory is reserved as output arrives.
type Budget struct {
	mu   sync.Mutex
	left int64
}

// ownBudget is the memory that each call has in addition to the common budget, so that callers that
// read large answers slowly cannot block small answers of other callers.
const ownBudget = 64 << 10

// NewBudget returns a Budget of the given number of bytes.
func NewBudget(bytes int64) *Budget { return &Budget{left: bytes} }

// Share is the part of a Budget that one call uses. A nil Share has no limit.
type Share struct {
	budget *Budget
	own    int64 // remaining memory of ownBudget
	held   int64 // bytes taken from the budget
}

// Share returns an empty share. The caller must close it.
func (r *Budget) Share() *Share { return &Share{budget: r, own: ownBudget} }

// take reserves n bytes, or as many as are available. It never waits, because callers that wait
// while they hold memory could deadlock.
func (s *Share) take(n int64) int64 {
	if s == nil {
		return n
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	own := min(n, s.own)
	n = min(n-own, max(s.budget.left, 0))
	s.own -= own
	s.budget.left -= n
	s.held += n
	return own + n
}

// adjust adds n bytes to the share after stored output has grown or, if n is negative, shrunk. The
// budget may be exceeded by at most one message.
func (s *Share) adjust(n int64) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.left -= n
	s.held += n
}

// Close releases the whole share.
func (s *Share) Close() {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.left += s.held
	s.held = 0
}
