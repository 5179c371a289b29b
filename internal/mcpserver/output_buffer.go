package mcpserver

import "sync"

// keptBytes is how much of the beginning of a command's output is stored, and of its end. Output
// between these is counted and dropped.
const keptBytes = 512 << 10

// outputBuffer stores a program's output, within limits. Positions count from the first byte,
// including dropped ones.
type outputBuffer struct {
	limit int // size of head, and of tail

	mu    sync.Mutex
	head  []byte
	tail  []byte
	total int64
	grown chan struct{} // closed at the next write; nil if no reader waits
}

func newOutputBuffer(limit int) *outputBuffer { return &outputBuffer{limit: limit} }

func (t *outputBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	t.total += int64(n)
	if room := t.limit - len(t.head); room > 0 {
		k := min(room, len(p))
		t.head = append(t.head, p[:k]...)
		p = p[k:]
	}
	// Otherwise the buffer would keep the size of a piece of many MiB, which the interpreter may
	// send.
	if len(p) > t.limit {
		t.tail, p = t.tail[:0], p[len(p)-t.limit:]
	}
	t.tail = append(t.tail, p...)
	// The data is moved rarely, so that each byte is moved about once.
	if len(t.tail) > 2*t.limit {
		t.tail = append(t.tail[:0], t.tail[len(t.tail)-t.limit:]...)
	}
	if t.grown != nil {
		close(t.grown)
		t.grown = nil
	}
	return n, nil
}

// size returns how much was written, and how much is in memory.
func (t *outputBuffer) size() (total int64, kept int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total, len(t.head) + len(t.tail)
}

// more returns a channel that is closed at the next write.
func (t *outputBuffer) more() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grown == nil {
		t.grown = make(chan struct{})
	}
	return t.grown
}

// read returns at most the given number of bytes from a position on, the next position, and how
// many bytes were skipped because they were dropped.
func (t *outputBuffer) read(from int64, limit int) (data []byte, next, skipped int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from = max(0, min(from, t.total))
	if from < int64(len(t.head)) {
		data = t.head[from:min(int64(len(t.head)), from+int64(limit))]
		return append([]byte(nil), data...), from + int64(len(data)), 0
	}
	tailAt := t.total - int64(len(t.tail))
	if from < tailAt {
		skipped = tailAt - from
		from = tailAt
	}
	data = t.tail[from-tailAt:]
	data = data[:min(len(data), limit)]
	return append([]byte(nil), data...), from + int64(len(data)), skipped
}

// text returns all stored output, with a note about dropped bytes.
func (t *outputBuffer) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	gap := t.total - int64(len(t.head)) - int64(len(t.tail))
	if gap == 0 {
		return string(t.head) + string(t.tail)
	}
	return string(t.head) + omittedNote(gap) + string(t.tail)
}
