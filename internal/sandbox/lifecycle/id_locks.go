package lifecycle

import (
	"context"
	"sync"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/lockorder"
)

// locks serializes the operations on one sandbox. It stores nothing for sandboxes without an
// operation.
type locks struct {
	mu sync.Mutex
	m  map[string]*lock
}

type lock struct {
	held chan struct{} // holds a value while the lock is held
	refs int           // holders and waiters; guarded by locks.mu
}

// acquire waits for the lock of an ID. The caller calls release once.
func (l *locks) acquire(ctx context.Context, id string) (release func(), err error) {
	leave := lockorder.Enter[rankID]()
	l.mu.Lock()
	if l.m == nil {
		l.m = make(map[string]*lock)
	}
	k := l.m[id]
	if k == nil {
		k = &lock{held: make(chan struct{}, 1)}
		l.m[id] = k
	}
	k.refs++
	l.mu.Unlock()

	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; l.unref(id, k); leave() }, nil
	case <-ctx.Done():
		l.unref(id, k)
		leave()
		return nil, fault.Wrap(context.Cause(ctx), fault.Canceled, "canceled", "the request was canceled")
	}
}

func (l *locks) unref(id string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.refs--; k.refs == 0 {
		delete(l.m, id)
	}
}
