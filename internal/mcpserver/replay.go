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

// Limits of messages that are stored for clients whose connection broke. The overhead of a stream
// and of a message is counted too, so that empty ones are bounded as well.
const (
	keptPerKey  = 8 << 20   // of a key: a result with the largest picture fits
	keptTotal   = 128 << 20 // of all keys
	keptFor     = 10 * time.Minute
	streamCost  = 512
	messageCost = 64
)

// replays stores messages that clients with sessions may request again. If the total is too large,
// the key with the most loses messages first, so that each key is guaranteed an equal share.
type replays struct {
	share, total int

	mu   sync.Mutex
	cost int
	keys map[*replay]struct{}
}

func newReplays() *replays {
	return &replays{share: keptPerKey, total: keptTotal, keys: map[*replay]struct{}{}}
}

// key returns the store of one key.
func (a *replays) key() *replay {
	r := &replay{of: a, streams: map[streamID]*list.Element{}, order: list.New()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[r] = struct{}{}
	return r
}

// sweep drops streams that have had no message for a long time.
func (a *replays) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range a.keys {
		for e := r.order.Front(); e != nil && time.Since(e.Value.(*storedStream).last) > keptFor; e = r.order.Front() {
			r.drop(e)
		}
	}
}

// dropExcess drops the excess after r has grown. The caller holds a.mu.
func (a *replays) dropExcess(r *replay) {
	for r.cost > a.share && r.order.Len() > 0 {
		r.drop(r.order.Front())
	}
	for a.cost > a.total {
		var largest *replay
		for k := range a.keys {
			if k.order.Len() > 0 && (largest == nil || k.cost > largest.cost) {
				largest = k
			}
		}
		if largest == nil {
			return
		}
		largest.drop(largest.order.Front())
	}
}

// replay is the store of one key, an mcp.EventStore. It drops whole streams, starting with the one
// that has had no message for longest: an incomplete stream cannot be resumed.
type replay struct {
	of *replays

	// The fields below are guarded by of.mu.
	cost    int
	streams map[streamID]*list.Element
	order   *list.List // of *storedStream, least recently used first
	closed  bool
}

var _ mcp.EventStore = (*replay)(nil)

// streamID identifies a stream of a session. The library creates both IDs at random, except for the
// stream "", on which a session's client listens.
type streamID struct{ session, stream string }

// storedStream is one stored stream.
type storedStream struct {
	id       streamID
	messages [][]byte
	cost     int
	last     time.Time
}

// errNotKept means that a stream cannot be resumed.
var errNotKept = errors.New("the stream is no longer stored")

// Open begins a stream.
func (r *replay) Open(_ context.Context, session, stream string) error {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	id := streamID{session, stream}
	if r.closed || r.streams[id] != nil {
		return nil
	}
	k := &storedStream{id: id, last: time.Now()}
	r.streams[id] = r.order.PushBack(k)
	r.grow(k, streamCost)
	r.of.dropExcess(r)
	return nil
}

// Append stores a message of a stream.
func (r *replay) Append(_ context.Context, session, stream string, data []byte) error {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	e := r.streams[streamID{session, stream}]
	if e == nil {
		// A stream is not stored from its middle, because the numbers would be wrong, and a client
		// would get another message than the one that it missed.
		return errNotKept
	}
	k := e.Value.(*storedStream)
	if k.cost+messageCost+len(data) > r.of.share {
		r.drop(e) // do not drop others for a stream that is too large in any case
		return errNotKept
	}
	k.messages = append(k.messages, data) // not changed any more
	k.last = time.Now()
	r.order.MoveToBack(e)
	r.grow(k, messageCost+len(data))
	r.of.dropExcess(r)
	return nil
}

// After returns the messages after a given one.
func (r *replay) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	e := r.streams[streamID{session, stream}]
	switch {
	case e == nil && index < 0:
		// The client starts to listen, and has missed nothing.
		return func(func([]byte, error) bool) {}
	case e == nil:
		return func(yield func([]byte, error) bool) { yield(nil, errNotKept) }
	}
	messages := e.Value.(*storedStream).messages
	missed := slices.Clone(messages[min(max(index, -1)+1, len(messages)):])
	return func(yield func([]byte, error) bool) {
		for _, m := range missed {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// SessionClosed drops the streams of a session.
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

// close drops all streams, and prevents later ones from being stored.
func (r *replay) close() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.closed = true
	for _, e := range r.streams {
		r.drop(e)
	}
	delete(r.of.keys, r)
}

// grow and drop update the totals. The caller holds of.mu.
func (r *replay) grow(k *storedStream, by int) {
	k.cost += by
	r.cost += by
	r.of.cost += by
}

func (r *replay) drop(e *list.Element) {
	k := r.order.Remove(e).(*storedStream)
	delete(r.streams, k.id)
	r.grow(k, -k.cost)
}
