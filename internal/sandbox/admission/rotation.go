package admission

import (
	"slices"
	"time"
)

// entry is one caller that waits.
type entry struct {
	request  Request
	since    time.Time
	admitted chan struct{} // closed when its turn has come
}

// line holds the callers of one key, first come first.
type line struct {
	key     string
	entries []*entry
}

// rotation holds a line for each key with waiting callers. Lines take turns, one caller each,
// so that a key that requests one sandbox does not wait for the hundred sandboxes of another.
type rotation struct {
	lines []*line // the line whose turn is next is first
	count int
}

// find returns the index of the line of a key, or -1.
func (r *rotation) find(key string) int {
	return slices.IndexFunc(r.lines, func(l *line) bool { return l.key == key })
}

func (r *rotation) add(e *entry) {
	r.count++
	if at := r.find(e.request.Key); at >= 0 {
		r.lines[at].entries = append(r.lines[at].entries, e)
		return
	}
	r.lines = append(r.lines, &line{key: e.request.Key, entries: []*entry{e}})
}

// next removes and returns the caller whose turn it is, or returns nil.
func (r *rotation) next() *entry {
	if len(r.lines) == 0 {
		return nil
	}
	l := r.lines[0]
	e := l.entries[0]
	l.entries = l.entries[1:]
	r.count--
	r.lines = r.lines[1:]
	if len(l.entries) > 0 {
		r.lines = append(r.lines, l)
	}
	return e
}

// remove removes a caller, and reports whether it was there.
func (r *rotation) remove(e *entry) bool {
	at := r.find(e.request.Key)
	if at < 0 {
		return false
	}
	l := r.lines[at]
	i := slices.Index(l.entries, e)
	if i < 0 {
		return false
	}
	r.count--
	if l.entries = slices.Delete(l.entries, i, i+1); len(l.entries) == 0 {
		r.lines = slices.Delete(r.lines, at, at+1)
	}
	return true
}

// waiting returns the number of waiting callers of a key.
func (r *rotation) waiting(key string) int {
	if at := r.find(key); at >= 0 {
		return len(r.lines[at].entries)
	}
	return 0
}

// position returns the position in the whole rotation of the caller at one index of the line at
// another index. The next caller to be served has position 1.
func (r *rotation) position(at, index int) int {
	ahead := index
	for i, l := range r.lines {
		switch {
		case i < at:
			ahead += min(len(l.entries), index+1)
		case i > at:
			ahead += min(len(l.entries), index)
		}
	}
	return ahead + 1
}

// nextPosition returns the position that the next request of a key would get.
func (r *rotation) nextPosition(key string) int {
	if at := r.find(key); at >= 0 {
		return r.position(at, len(r.lines[at].entries))
	}
	return r.position(len(r.lines), 0)
}
