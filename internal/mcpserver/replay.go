package mcpserver

import (
	"container/list"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of what is kept for clients whose connection broke. What a stream and
// a message cost besides their bytes is counted, so that empty ones are bounded
// as well.
const (
	keptShare   = 8 << 20   // of a key: a result with the largest picture fits
	keptInAll   = 128 << 20 // of all keys
	keptFor     = 10 * time.Minute
	streamCost  = 512
	messageCost = 64
)

// replays are the messages that were sent to clients with sessions and may be asked for again.
// Each key has a share of its own: where all of them are too much, the key that has most is cut
// first, so that no key loses less than an equal part because another uses too much.
type replays struct {
	share, total int

	mu   sync.Mutex
	cost int
	keys map[*replay]struct{}
}

func newReplays() *replays {
	return &replays{share: keptShare, total: keptInAll, keys: map[*replay]struct{}{}}
}

// key returns the store of one key.
func (a *replays) key() *replay {
	r := &replay{of: a, streams: map[streamID]*list.Element{}, order: list.New()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[r] = struct{}{}
	return r
}

// sweep forgets streams on which nothing was said for long.
func (a *replays) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range a.keys {
		for e := r.order.Front(); e != nil && time.Since(e.Value.(*kept).last) > keptFor; e = r.order.Front() {
			r.drop(e)
		}
	}
}

// fit drops what is too much after r has grown. a.mu must be held.
func (a *replays) fit(r *replay) {
	for r.cost > a.share && r.order.Len() > 0 {
		r.drop(r.order.Front())
	}
	for a.cost > a.total {
		var most *replay
		for k := range a.keys {
			if k.order.Len() > 0 && (most == nil || k.cost > most.cost) {
				most = k
			}
		}
		if most == nil {
			return
		}
		most.drop(most.order.Front())
	}
}

// replay is what is kept for one key, an mcp.EventStore. Streams go as a whole,
// that first on which nothing was said for longest: what is gone in part cannot
// be taken up.
type replay struct {
	of *replays

	// Guarded by of.mu.
	cost    int
	streams map[streamID]*list.Element
	order   *list.List // of *kept, that first which was used least recently
	closed  bool
}

var _ mcp.EventStore = (*replay)(nil)

// streamID is a stream of a session. Both are the library's, and random but
// for the stream "", on which a session's client listens.
type streamID struct{ session, stream string }

// kept is one stream.
type kept struct {
	id       streamID
	messages [][]byte
	cost     int
	last     time.Time
}

// errNotKept says that a stream cannot be taken up.
var errNotKept = errors.New("the stream is not kept any more")

// Open begins a stream.
func (r *replay) Open(_ context.Context, session, stream string) error {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	id := streamID{session, stream}
	if r.closed || r.streams[id] != nil {
		return nil
	}
	k := &kept{id: id, last: time.Now()}
	r.streams[id] = r.order.PushBack(k)
	r.grow(k, streamCost)
	r.of.fit(r)
	return nil
}

// Append keeps a message that is said on a stream.
func (r *replay) Append(_ context.Context, session, stream string, data []byte) error {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	e := r.streams[streamID{session, stream}]
	if e == nil {
		// A stream that begins in its middle would be counted wrongly, and a
		// client be given another message than the one that it missed.
		return errNotKept
	}
	k := e.Value.(*kept)
	if k.cost+messageCost+len(data) > r.of.share {
		r.drop(e) // the others need not go for what does not fit in any case
		return errNotKept
	}
	k.messages = append(k.messages, data) // not changed any more
	k.last = time.Now()
	r.order.MoveToBack(e)
	r.grow(k, messageCost+len(data))
	r.of.fit(r)
	return nil
}

// After returns what was said after a message.
func (r *replay) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	e := r.streams[streamID{session, stream}]
	switch {
	case e == nil && index < 0:
		// A client begins to listen, and has missed nothing that it knows of.
		return func(func([]byte, error) bool) {}
	case e == nil:
		return func(yield func([]byte, error) bool) { yield(nil, errNotKept) }
	}
	messages := e.Value.(*kept).messages
	missed := slices.Clone(messages[min(max(index, -1)+1, len(messages)):])
	return func(yield func([]byte, error) bool) {
		for _, m := range missed {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// SessionClosed forgets the streams of a session.
func (r *replay) SessionClosed(_ context.Context, session string) error {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	for id, e := range r.streams {
		if id.session == session {
			r.drop(e)
		}
	}
	return nil
}

// close forgets all streams, and keeps none that come later.
func (r *replay) close() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.closed = true
	for _, e := range r.streams {
		r.drop(e)
	}
	delete(r.of.keys, r)
}

// grow and drop keep account. of.mu must be held.
func (r *replay) grow(k *kept, by int) {
	k.cost += by
	r.cost += by
	r.of.cost += by
}

func (r *replay) drop(e *list.Element) {
	k := r.order.Remove(e).(*kept)
	delete(r.streams, k.id)
	r.grow(k, -k.cost)
}
