package client

import (
	"context"
	"io"
	"sync"
)

// ahead reads while what was read before is under way. So a call carries one
// keystroke where nothing else is typed, and a whole piece where the reader is
// faster than the way into the sandbox.
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

// scratch is how much one read takes.
const scratch = 32 << 10

// readAhead begins to read, and holds at most so much. It stops when the context ends, or at stop; a reader
// that never returns keeps its goroutine.
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

// keep holds data once there is room, and reports whether anybody wants more.
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

// next waits for data, or for the end. What it returns is valid until it is
// called again.
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

// end says that no more comes after what is held.
func (a *ahead) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
	a.changed.Broadcast()
}

// stop ends reading ahead: no consumer takes data any more.
func (a *ahead) stop() {
	a.unwatch()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	a.changed.Broadcast()
}
