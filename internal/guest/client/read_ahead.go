package client

import (
	"context"
	"io"
	"sync"
)

// ahead reads input while earlier input is still being sent. A call then carries one keystroke if
// nothing more is typed, and a whole piece if the reader is faster than the connection.
type ahead struct {
	mu      sync.Mutex
	changed *sync.Cond
	limit   int    // maximum length of held
	held    []byte // data that was read and that next has not returned yet
	last    []byte // last result of next, whose memory is reused
	err     error  // error that follows held
	stopped bool
	unwatch func() bool
}

// readSize is the size of one read.
const readSize = 32 << 10

// readAhead starts reading, and buffers at most limit bytes. It stops when ctx ends or stop is
// called. If the reader never returns, its goroutine stays.
func readAhead(ctx context.Context, r io.Reader, limit int) *ahead {
	a := &ahead{limit: limit}
	a.changed = sync.NewCond(&a.mu)
	a.unwatch = context.AfterFunc(ctx, func() { a.end(ctx.Err()) })
	go a.read(r)
	return a
}

// read reads until r ends or reading is stopped.
func (a *ahead) read(r io.Reader) {
	buf := make([]byte, readSize)
	for {
		n, err := r.Read(buf)
		if !a.store(buf[:n]) {
			return
		}
		if err != nil {
			a.end(err)
			return
		}
	}
}

// store buffers data once there is space, and reports whether to continue reading.
func (a *ahead) store(data []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.stopped && a.err == nil && len(a.held)+len(data) > a.limit {
		a.changed.Wait()
	}
	if a.stopped || a.err != nil {
		return false
	}
	a.held = append(a.held, data...)
	a.changed.Broadcast()
	return true
}

// next waits for data or the end of the input. Its result is valid until the next call.
func (a *ahead) next() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.held) == 0 && a.err == nil {
		a.changed.Wait()
	}
	data := a.held
	a.held, a.last = a.last[:0], data
	a.changed.Broadcast()
	return data, a.err
}

// end records the error that ends the input, unless there was one before.
func (a *ahead) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
	a.changed.Broadcast()
}

// stop stops reading ahead.
func (a *ahead) stop() {
	a.unwatch()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	a.changed.Broadcast()
}
