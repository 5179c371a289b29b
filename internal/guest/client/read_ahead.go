package client

import (
	"context"
	"io"
	"sync"
)

// ahead reads while the last data is being processed. So a call carries one keystroke if nothing
// else is typed, and a whole piece if the reader is faster than the connection to the sandbox.
type ahead struct {
	mu      sync.Mutex
	changed *sync.Cond
	most    int    // of what is held
	held    []byte // read and not yet taken
	spare   []byte // what next returned last
	err     error  // after held
	stopped bool
	unwatch func() bool
}

// scratch is the size of one read.
const scratch = 32 << 10

// readAhead starts to read, and holds at most the given number of bytes. It stops when the context
// ends, or at stop; a reader that never returns keeps its goroutine.
func readAhead(ctx context.Context, r io.Reader, most int) *ahead {
	a := &ahead{most: most}
	a.changed = sync.NewCond(&a.mu)
	a.unwatch = context.AfterFunc(ctx, func() { a.end(ctx.Err()) })
	go a.read(r)
	return a
}

func (a *ahead) read(r io.Reader) {
	buf := make([]byte, scratch)
	for {
		n, err := r.Read(buf)
		if !a.keep(buf[:n]) {
			return
		}
		if err != nil {
			a.end(err)
			return
		}
	}
}

// keep stores data once there is room, and reports whether more is wanted.
func (a *ahead) keep(data []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.stopped && a.err == nil && len(a.held)+len(data) > a.most {
		a.changed.Wait()
	}
	if a.stopped || a.err != nil {
		return false
	}
	a.held = append(a.held, data...)
	a.changed.Broadcast()
	return true
}

// next waits for data, or for the end. Its result is valid until the next call.
func (a *ahead) next() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.held) == 0 && a.err == nil {
		a.changed.Wait()
	}
	data := a.held
	a.held, a.spare = a.spare[:0], data
	a.changed.Broadcast()
	return data, a.err
}

// end marks that no more follows the held data.
func (a *ahead) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
	a.changed.Broadcast()
}

// stop ends reading ahead: no consumer wants more data.
func (a *ahead) stop() {
	a.unwatch()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	a.changed.Broadcast()
}
