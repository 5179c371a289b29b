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

// eventBytes is the default size limit of a file of events, and leastEvents the smallest limit that
// a caller can set.
const (
	eventBytes  = 64 << 20
	leastEvents = 64 << 10
)

// checkEvents refuses a file that the kernel could do more to than append.
func checkEvents(spec *engine.Spec) error {
	if spec.Events == nil {
		return nil
	}
	if spec.EventBytes == 0 {
		spec.EventBytes = eventBytes
	}
	if spec.EventBytes < leastEvents {
		return fault.Newf(fault.Invalid, "events_too_small", "a file of events needs at least %d bytes, not %d", leastEvents, spec.EventBytes)
	}
	flags, err := unix.FcntlInt(spec.Events.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	// A compromised kernel must not be able to overwrite its earlier events.
	if flags&unix.O_APPEND == 0 || flags&unix.O_ACCMODE == unix.O_RDONLY {
		return fault.New(fault.Invalid, "events_not_append", "the file of events is not opened to append")
	}
	return nil
}

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

// observeAgain lets a paused sandbox continue after the last event of a file that another sandbox
// has written to.
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

func newSession(spec engine.Spec, restored bool) (*boot.CreateTraceSessionArgs, error) {
	last, torn, err := lastEvent(spec.Events)
	return &boot.CreateTraceSessionArgs{
		Config:      watch.Session(watch.Start{Next: last + 1, Bytes: spec.EventBytes, Restored: restored, Torn: torn}),
		FilePayload: urpc.FilePayload{Files: []*os.File{spec.Events}},
	}, err
}

// lastEvent returns the number of the last event in a file that may be open for appending only, and
// whether an incomplete line of a killed kernel follows it.
func lastEvent(file *os.File) (seq uint64, torn bool, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, false, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	var end [1]byte
	if _, err := f.ReadAt(end[:], info.Size()-1); err != nil {
		return 0, false, err
	}
	seq, _, err = events.Last(f)
	return seq, end[0] != '\n', err
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

// flushEvents asks the kernel to write the pending events, and waits for it. A kernel that is not
// observed has none.
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
		return fault.Newf(fault.Conflict, notWatched, "sandbox %q is not watched", b.rec.ID)
	case pending == watch.Unsaved:
		return fault.Newf(fault.Conflict, "sandbox_stands_still", "sandbox %q is being saved", b.rec.ID)
	case pending > 0:
		return fault.Newf(fault.Exhausted, "events_full", "%d changed files of sandbox %q are not recorded, because its file of events is full", pending, b.rec.ID).
			WithHint("shorten the file by what was read, and try again")
	}
	return nil
}

// notWatched is the code of the fault for a sandbox without a file of events.
const notWatched = "not_watched"

// lastEventsTimeout bounds how long the end of a sandbox waits for the events of its last changes.
const lastEventsTimeout = 10 * time.Second

// flushBefore records changes before a sandbox's state is saved. A sandbox that is not observed has
// none.
func (b *instance) flushBefore(ctx context.Context) error {
	if err := b.flushEvents(ctx); err != nil && fault.CodeOf(err) != notWatched {
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
	// A removal surveys the sandbox first, and then kills the kernel that would answer.
	if err != nil && !removed {
		b.e.log.Warn("record the last changes of a sandbox", "sandbox", b.rec.ID, "err", err)
	}
}
