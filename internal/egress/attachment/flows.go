package attachment

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// slot counts one connection against the limit. It is released when the stack has finished with the
// connection, not when the handler closes it. Otherwise a sandbox that never reads could occupy any
// number of buffers.
type slot struct {
	endpoint tcpip.Endpoint // nil until accepted
	closed   time.Time      // when the handler closed it; zero before
}

// flows are an attachment's connections.
type flows struct {
	mu    sync.Mutex
	open  map[*slot]struct{}
	sweep *time.Timer // set while closed connections linger
}

const (
	// manyConnections is the number of connections above which each gets smaller buffers.
	manyConnections = 32
	// maxLinger is how long a closed connection may take to send its remaining data.
	maxLinger = time.Minute
	// sweepEvery is the interval at which lingering connections are checked.
	sweepEvery = 200 * time.Millisecond
)

// take returns a new slot, or nil if the limit is reached.
func (f *flows) take(limit int) *slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open) >= limit {
		f.reap(time.Now())
	}
	if len(f.open) >= limit {
		return nil
	}
	s := &slot{}
	f.open[s] = struct{}{}
	return s
}

func (f *flows) began(s *slot, e tcpip.Endpoint) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.endpoint = e
}

func (f *flows) ended(s *slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, s)
}

// linger keeps the slot of a connection that the handler has closed until its remaining data is
// sent.
func (f *flows) linger(s *slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.closed = time.Now()
	if over(s.endpoint) {
		delete(f.open, s)
		return
	}
	if _, held := f.open[s]; held && f.sweep == nil {
		f.sweep = time.AfterFunc(sweepEvery, f.expire)
	}
}

func (f *flows) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sweep == nil {
		return
	}
	if f.reap(time.Now()) > 0 {
		f.sweep.Reset(sweepEvery)
		return
	}
	f.sweep = nil
}

// reap releases the slots of finished connections and aborts those that have lingered for too long.
// It returns the number of connections that still linger. mu must be held.
func (f *flows) reap(now time.Time) int {
	left := 0
	for s := range f.open {
		switch {
		case s.closed.IsZero():
		case over(s.endpoint):
			delete(f.open, s)
		case now.Sub(s.closed) > maxLinger:
			s.endpoint.Abort()
			delete(f.open, s)
		default:
			left++
		}
	}
	return left
}

// over reports whether a connection is finished.
func over(e tcpip.Endpoint) bool {
	switch tcp.EndpointState(e.State()) {
	case tcp.StateClose, tcp.StateError, tcp.StateTimeWait:
		return true
	default:
		return false
	}
}

// abort resets every accepted connection.
func (f *flows) abort() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.open {
		if s.endpoint != nil {
			s.endpoint.Abort()
			delete(f.open, s)
		}
	}
	if f.sweep != nil {
		f.sweep.Stop()
		f.sweep = nil
	}
}

func (f *flows) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

func (f *flows) hasManyConnections() bool { return f.count() > manyConnections }

// abortHandshakes ends handshakes that sandboxes have not completed. It repeats until none is left,
// because the stack may not know a handshake that has just begun.
func (l *Link) abortHandshakes() {
	for {
		for _, e := range l.stack.RegisteredEndpoints() {
			e.Abort()
		}
		if l.handshakes.Load() == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
