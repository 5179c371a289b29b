package client

import "sync"

// Budget limits how much output is held for all callers together. Each of them has a limit of its
// own, and many together would need more memory than a server has. Most commands print little, so
// room is taken as output comes.
type Budget struct {
	mu   sync.Mutex
	left int64
}

// ownBudget is what each call has for itself: callers who read large answers slowly, to use up all
// the room, must not keep others from a few lines.
const ownBudget = 64 << 10

// NewBudget returns a Budget of a number of bytes.
func NewBudget(bytes int64) *Budget { return &Budget{left: bytes} }

// Share is the part of the room that one call uses. The nil Share has no limit.
type Share struct {
	room *Budget
	own  int64 // left of the call's own
	held int64
}

// Share returns an empty share. It must be closed.
func (r *Budget) Share() *Share { return &Share{room: r, own: ownBudget} }

// take takes room for n bytes, or for as many as possible. It never waits: a caller that waits
// while it holds room could wait for ever.
func (s *Share) take(n int64) int64 {
	if s == nil {
		return n
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	own := min(n, s.own)
	n = min(n-own, max(s.room.left, 0))
	s.own -= own
	s.room.left -= n
	s.held += n
	return own + n
}

// more takes or frees room for kept output that has grown or shrunk. It may exceed the limit by at
// most one message.
func (s *Share) more(n int64) {
	if s == nil {
		return
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.left -= n
	s.held += n
}

// Close frees all of it.
func (s *Share) Close() {
	if s == nil {
		return
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.left += s.held
	s.held = 0
}
