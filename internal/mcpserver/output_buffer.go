package mcpserver

import "sync"

// keptBytes is what is kept of the beginning of a command's output, and of its
// end. What a noisy program prints between is counted and not kept.
const keptBytes = 512 << 10

// tape keeps what a program prints, within bounds. Positions count from the
// first byte, also of what was not kept.
type tape struct {
	most int // of head, and of tail

	mu    sync.Mutex
	head  []byte
	tail  []byte
	total int64
	grown chan struct{} // closed when something is written; nil if no reader waits
}

func newTape(most int) *tape { return &tape{most: most} }

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	t.total += int64(n)
	if room := t.most - len(t.head); room > 0 {
		k := min(room, len(p))
		t.head = append(t.head, p[:k]...)
		p = p[k:]
	}
	// The room for a piece of many MiB, as the interpreter sends them, would stay.
	if len(p) > t.most {
		t.tail, p = t.tail[:0], p[len(p)-t.most:]
	}
	t.tail = append(t.tail, p...)
	// Moved only now and then, so that each byte is moved about once.
	if len(t.tail) > 2*t.most {
		t.tail = append(t.tail[:0], t.tail[len(t.tail)-t.most:]...)
	}
	if t.grown != nil {
		close(t.grown)
		t.grown = nil
	}
	return n, nil
}

// size is how much was written, and how much of it is in memory.
func (t *tape) size() (total int64, kept int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total, len(t.head) + len(t.tail)
}

// more returns a channel that is closed when something is written after now.
func (t *tape) more() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grown == nil {
		t.grown = make(chan struct{})
	}
	return t.grown
}

// read returns at most so many bytes from a position on, where the next begin,
// and how many were skipped because they are not kept.
func (t *tape) read(from int64, most int) (data []byte, next, skipped int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from = max(0, min(from, t.total))
	if from < int64(len(t.head)) {
		data = t.head[from:min(int64(len(t.head)), from+int64(most))]
		return append([]byte(nil), data...), from + int64(len(data)), 0
	}
	tailAt := t.total - int64(len(t.tail))
	if from < tailAt {
		skipped = tailAt - from
		from = tailAt
	}
	data = t.tail[from-tailAt:]
	data = data[:min(len(data), most)]
	return append([]byte(nil), data...), from + int64(len(data)), skipped
}

// text returns all that is kept; what is missing between is said.
func (t *tape) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	gap := t.total - int64(len(t.head)) - int64(len(t.tail))
	if gap == 0 {
		return string(t.head) + string(t.tail)
	}
	return string(t.head) + leftOut(gap) + string(t.tail)
}
