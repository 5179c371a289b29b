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

func (b *outputBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(p)
	b.total += int64(n)
	if room := b.limit - len(b.head); room > 0 {
		k := min(room, len(p))
		b.head = append(b.head, p[:k]...)
		p = p[k:]
	}
	// Otherwise the buffer would keep the size of a piece of many MiB, which the interpreter may
	// send.
	if len(p) > b.limit {
		b.tail, p = b.tail[:0], p[len(p)-b.limit:]
	}
	b.tail = append(b.tail, p...)
	// The data is moved rarely, so that each byte is moved about once.
	if len(b.tail) > 2*b.limit {
		b.tail = append(b.tail[:0], b.tail[len(b.tail)-b.limit:]...)
	}
	if b.grown != nil {
		close(b.grown)
		b.grown = nil
	}
	return n, nil
}

// size returns how much was written, and how much is in memory.
func (b *outputBuffer) size() (total int64, kept int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total, len(b.head) + len(b.tail)
}

// more returns a channel that is closed at the next write.
func (b *outputBuffer) more() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grown == nil {
		b.grown = make(chan struct{})
	}
	return b.grown
}

// read returns at most the given number of bytes from a position on, the next position, and how
// many bytes were skipped because they were dropped.
func (b *outputBuffer) read(from int64, limit int) (data []byte, next, skipped int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from = max(0, min(from, b.total))
	if from < int64(len(b.head)) {
		data = b.head[from:min(int64(len(b.head)), from+int64(limit))]
		return append([]byte(nil), data...), from + int64(len(data)), 0
	}
	tailAt := b.total - int64(len(b.tail))
	if from < tailAt {
		skipped = tailAt - from
		from = tailAt
	}
	data = b.tail[from-tailAt:]
	data = data[:min(len(data), limit)]
	return append([]byte(nil), data...), from + int64(len(data)), skipped
}

// text returns all stored output, with a note about dropped bytes.
func (b *outputBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	gap := b.total - int64(len(b.head)) - int64(len(b.tail))
	if gap == 0 {
		return string(b.head) + string(b.tail)
	}
	return string(b.head) + omittedNote(gap) + string(b.tail)
}
