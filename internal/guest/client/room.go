package client

import "sync"

// Room is how much output is held for callers at the same time. Each of them
// has a limit of its own, and many together would be more memory than a server
// has. Most commands print little, so room is taken as output comes.
type Room struct {
	mu   sync.Mutex
	left int64
}

// ownRoom is what each call has for itself: callers who read large answers
// slowly, to hold all the room, must not take the others' few lines.
const ownRoom = 64 << 10

// NewRoom makes room for so many bytes.
func NewRoom(bytes int64) *Room { return &Room{left: bytes} }

// Share is what one call holds of the room. The nil Share has no bound.
type Share struct {
	room *Room
	own  int64 // left of its own
	held int64
}

// Share begins to hold nothing. It must be closed.
func (r *Room) Share() *Share { return &Share{room: r, own: ownRoom} }

// take takes room for n bytes, or for as many as there is room for. It never
// waits: who waits while holding some could wait for ever.
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

// more takes room, or gives it back, for what grew, or shrank, while it was
// kept. It may take more than there is: that is no more than one message.
func (s *Share) more(n int64) {
	if s == nil {
		return
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.left -= n
	s.held += n
}

// Close gives all back.
func (s *Share) Close() {
	if s == nil {
		return
	}
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.left += s.held
	s.held = 0
}
