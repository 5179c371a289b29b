package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// watch records what the programs of a sandbox do. One command at a time uses it, or a caller that
// has stopped all commands.
type watch struct {
	file   *os.File
	writer *events.Writer
	seq    uint64
	known  map[string]file // the files as last recorded
}

// defaultEventBytes bounds the file of events if the specification has no bound.
const defaultEventBytes = 64 << 20

// newWatch starts to record events of a sandbox with these files. The events follow those of the
// previous instance, if there was one.
func newWatch(spec engine.Spec, state *State, before *watch) (*watch, error) {
	if spec.Events == nil {
		return nil, nil
	}
	flags, err := unix.FcntlInt(spec.Events.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	if flags&unix.O_APPEND == 0 {
		return nil, fault.New(fault.Invalid, "events_invalid", "the file of events is not opened for appending")
	}
	fd, err := unix.FcntlInt(spec.Events.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	w := &watch{file: os.NewFile(uintptr(fd), "events"), known: state.copy().Files}
	if before != nil {
		w.seq = before.seq
	}
	limit := spec.EventBytes
	if limit == 0 {
		limit = defaultEventBytes
	}
	w.writer, err = events.NewWriter(fd, w.seq+1, limit, false)
	if err == nil {
		err = w.write(&events.Event{Kind: events.Began}, true)
	}
	if err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	return w, nil
}

// watched returns the watch of the sandbox, or nil.
func (b *instance) watched() *watch {
	b.one.Lock()
	defer b.one.Unlock()
	return b.watch
}

// write appends an event. If must is set, it also uses the space that is reserved for the ends of
// processes. A nil watch writes nothing.
func (w *watch) write(e *events.Event, must bool) error {
	if w == nil {
		return nil
	}
	err := w.writer.Write(e, must)
	w.seq = max(w.seq, e.Seq)
	return err
}

// recordChanges records changes of files since the last survey.
func (b *instance) recordChanges() error {
	if b.watch == nil {
		return nil
	}
	current := b.state.copy().Files
	names := slices.Collect(maps.Keys(current))
	for name := range b.watch.known {
		if _, ok := current[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		oldFile, existed := b.watch.known[name]
		if existed {
			existed = oldFile.Type != removedType
		} else {
			oldFile, existed = b.state.host.find(name)
		}
		newFile, exists := current[name]
		exists = exists && newFile.Type != removedType
		e := &events.Event{Kind: events.File, Path: "/" + name, UID: newFile.UID, Command: newFile.command}
		switch {
		case existed && exists && oldFile.Type == newFile.Type && oldFile.Text == newFile.Text && oldFile.UID == newFile.UID, !existed && !exists:
			continue
		case !exists:
			e.Op = events.Removed
		case existed:
			e.Op = events.Changed
		default:
			e.Op = events.Created
		}
		if exists {
			e.Type = newFile.Type
			if newFile.Type != dirType {
				e.Size, e.Sum = int64(len(newFile.Text)), newFile.sum()
			}
		}
		if err := b.watch.write(e, false); err != nil {
			return fault.Wrap(err, fault.Exhausted, "events_full", "the file of events has no room")
		}
	}
	b.watch.known = current
	return nil
}

// began records that a program is executed.
func (b *instance) began(s *session, argv []string) error {
	return b.watch.write(&events.Event{
		Kind: events.Exec, PID: s.pid, Parent: s.parent, UID: s.uid(), Command: s.command,
		Program: argv[0], Argv: argv, Cwd: s.cwd,
	}, false)
}

// ended records that a process has ended.
func (b *instance) ended(s *session, code int, since time.Time) error {
	return b.watch.write(&events.Event{
		Kind: events.Exit, PID: s.pid, Parent: s.parent, UID: s.uid(), Command: s.command,
		Code: code, Took: max(time.Since(since), 1),
	}, true)
}

// Survey implements engine.Observer.
func (e *Programs) Survey(ctx context.Context, id string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b := e.find(id)
	if b == nil || !b.running() {
		return unknown(id)
	}
	if b.watch == nil {
		return fault.Newf(fault.Conflict, "not_watched", "sandbox %q is not watched", id)
	}
	b.freezing.Lock()
	defer b.freezing.Unlock()
	if b.isFrozen {
		return b.recordChanges()
	}
	b.turn.Lock()
	defer b.turn.Unlock()
	return b.recordChanges()
}
