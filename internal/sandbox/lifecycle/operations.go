package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/lockorder"
	"github.com/crannog/crannog/internal/sandbox"
)

// operations are the creations, removals and changes of state in progress in this process, and the
// unfinished ones of earlier processes.
type operations struct {
	locks locks
	// onEnd is called at the end of each operation that was begun.
	onEnd func()

	mu       lockorder.RWMutex[rankOperations]
	closed   bool
	cancels  map[string]context.CancelCauseFunc // by the IDs of sandboxes with an operation
	removing map[string]int                     // removals that wait or are in progress
	// unwritten are sandboxes in a transitional state for which this process could not write the
	// outcome.
	unwritten map[string]bool
	failures  map[string]failure // of resumptions, by sandbox ID
	started   sync.WaitGroup
}

// failure is the outcome of the latest attempt to resume a sandbox.
type failure struct {
	at  time.Time
	err error
}

func newOperations(onEnd func()) *operations {
	return &operations{
		onEnd: onEnd, cancels: make(map[string]context.CancelCauseFunc), removing: make(map[string]int),
		unwritten: make(map[string]bool), failures: make(map[string]failure),
	}
}

// locked runs a function under a sandbox's lock.
func (o *operations) locked(ctx context.Context, id string, do func(context.Context, string) error) error {
	unlock, err := o.locks.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return do(ctx, id)
}

// begin registers a creation or a change of state, so that a removal and Close can
// cancel it.
func (o *operations) begin(ctx context.Context, id string) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		cancel(nil)
		return nil, nil, shuttingDown()
	}
	if o.removing[id] > 0 {
		cancel(nil)
		return nil, nil, removedDuringRequest()
	}
	o.started.Add(1)
	o.cancels[id] = cancel
	return ctx, func() {
		o.mu.Lock()
		delete(o.cancels, id)
		o.mu.Unlock()
		cancel(nil)
		o.onEnd()
		o.started.Done()
	}, nil
}

// beginNew is begin for a new sandbox, with its lock held until the returned function is called. A
// concurrent removal cancels the context and then waits for the lock.
func (o *operations) beginNew(ctx context.Context, id string) (context.Context, func(), error) {
	ctx, done, err := o.begin(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	unlock, err := o.locks.acquire(ctx, id)
	if err != nil {
		done()
		return nil, nil, err
	}
	return ctx, func() {
		unlock()
		done()
	}, nil
}

// beginOnce is begin for a caller that may have begun already.
func (o *operations) beginOnce(ctx context.Context, id string) (context.Context, func(), error) {
	if o.running(id) {
		return ctx, func() {}, nil
	}
	return o.begin(ctx, id)
}

// running reports whether an operation on a sandbox is in progress.
func (o *operations) running(id string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.cancels[id] != nil
}

// busy reports whether any operation is in progress.
func (o *operations) busy() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.cancels) > 0
}

// cancelForRemoval cancels the running operation of a sandbox that is to be removed, and rejects
// the waiting ones until done is called. Otherwise a client could prevent the removal by requesting
// one change of state after the other.
func (o *operations) cancelForRemoval(id string) (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removing[id]++
	if cancel := o.cancels[id]; cancel != nil {
		cancel(removedDuringRequest())
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.removing[id]--; o.removing[id] == 0 {
			delete(o.removing, id)
		}
	}
}

// close cancels all operations, waits for their end and rejects later ones.
func (o *operations) close() {
	o.mu.Lock()
	o.closed = true
	for _, cancel := range o.cancels {
		cancel(shuttingDown())
	}
	o.mu.Unlock()
	o.started.Wait()
}

// markUnwritten leaves a sandbox in a transitional state to the maintenance loop.
func (o *operations) markUnwritten(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unwritten[id] = true
}

// isUnwritten reports whether a sandbox was left to the maintenance loop.
func (o *operations) isUnwritten(id string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.unwritten[id]
}

// isStranded reports whether no process is left to take a row out of its transitional state. Either
// the process that set the state is dead, or it is this one and it failed to write the outcome.
func (o *operations) isStranded(p process, r sandbox.Row) bool {
	if r.State != sandbox.Pausing && r.State != sandbox.Resuming {
		return false
	}
	return o.isUnwritten(r.ID) || p.dead(r.Actor)
}

// recordMove records the outcome of writing a sandbox's next state.
func (o *operations) recordMove(id string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch code := fault.CodeOf(err); {
	case err == nil:
		delete(o.unwritten, id)
	case code == sandbox.CodeTooMany || code == sandbox.CodeTooManyPaused:
		// The row is unchanged. If it has another state later, this operation did not set it.
	default:
		o.unwritten[id] = true
	}
}

// failedSince returns the error of a resumption that has failed since a request began.
func (o *operations) failedSince(id string, started time.Time) error {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if f := o.failures[id]; f.err != nil && f.at.After(started) {
		return f.err
	}
	return nil
}

// recordResume records the outcome of resuming a sandbox.
func (o *operations) recordResume(id string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.failures, id)
	// The departure of one caller is no outcome for the others.
	if err != nil && fault.KindOf(err) != fault.Canceled {
		o.failures[id] = failure{time.Now(), err}
	}
}

// forget removes what is known of a sandbox that was removed.
func (o *operations) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.failures, id)
}
