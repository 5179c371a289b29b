package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/gvisor/watch"
	"github.com/crannog/crannog/internal/fault"
)

// observe makes a kernel record what programs do. It is called before the guest starts, so that no
// event is missed.
func observe(conn *urpc.Client, spec engine.Spec, restored bool) error {
	if spec.Events == nil {
		return nil
	}
	session, err := newSession(spec, restored)
	if err == nil {
		err = conn.Call(boot.ContMgrCreateTraceSession, session, nil)
	}
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	return nil
}

// observeAgain makes a paused sandbox number its next events after the last event in the file,
// which another sandbox may have written.
func (b *instance) observeAgain(ctx context.Context, spec engine.Spec) error {
	if spec.Events == nil {
		return nil
	}
	session, err := newSession(spec, true)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	session.Force = true
	return b.conns.call(ctx, boot.ContMgrCreateTraceSession, session, nil)
}

// newSession returns the request to observe programs, with events that follow those in the file.
func newSession(spec engine.Spec, restored bool) (*boot.CreateTraceSessionArgs, error) {
	last, torn, err := events.End(spec.Events)
	return &boot.CreateTraceSessionArgs{
		Config:      watch.Session(watch.Start{Next: last + 1, Bytes: spec.EventBytes, Restored: restored, Torn: torn}),
		FilePayload: urpc.FilePayload{Files: []*os.File{spec.Events}},
	}, err
}

// Survey implements engine.Observer.
func (e *Engine) Survey(ctx context.Context, id string) error {
	b, err := e.find(id)
	if err != nil {
		return err
	}
	b.watch()
	if b.over() {
		return engine.HasStopped(id, nil)
	}
	return b.flushEvents(ctx)
}

// flushEvents makes the kernel write the pending events, and returns when they are written.
func (b *instance) flushEvents(ctx context.Context) error {
	var sessions []seccheck.SessionConfig
	if err := b.conns.call(ctx, boot.ContMgrListTraceSessions, nil, &sessions); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			return engine.HasStopped(b.rec.ID, nil)
		}
		return fmt.Errorf("survey %s: %w", b.rec.ID, err)
	}
	pending, watched := watch.Pending(sessions)
	switch {
	case !watched:
		return fault.Newf(fault.Conflict, engine.CodeNotWatched, "sandbox %q is not watched", b.rec.ID)
	case pending == watch.Unsaved:
		return fault.Newf(fault.Conflict, "sandbox_stands_still", "sandbox %q is being saved", b.rec.ID)
	case pending > 0:
		return fault.Newf(fault.Exhausted, engine.CodeEventsFull, "%d changed files of sandbox %q are not recorded, because its file of events is full", pending, b.rec.ID).
			WithHint("shorten the file by what was read, and try again")
	}
	return nil
}

// lastEventsTimeout bounds how long the end of a sandbox waits for the events of its last changes.
const lastEventsTimeout = 10 * time.Second

// flushBefore is flushEvents before a sandbox's state is saved. It succeeds for a sandbox that is
// not observed.
func (b *instance) flushBefore(ctx context.Context) error {
	if err := b.flushEvents(ctx); err != nil && fault.CodeOf(err) != engine.CodeNotWatched {
		return err
	}
	return nil
}

// flushLast writes the remaining events when the guest has ended.
func (b *instance) flushLast() {
	ctx, cancel := context.WithTimeout(context.Background(), lastEventsTimeout)
	defer cancel()
	err := b.flushBefore(ctx)
	b.mu.Lock()
	removed := b.removed
	b.mu.Unlock()
	// After a removal an error is expected: the removal has made a survey and killed the kernel.
	if err != nil && !removed {
		b.e.log.Warn("record the last changes of a sandbox", "sandbox", b.rec.ID, "err", err)
	}
}
