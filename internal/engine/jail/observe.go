package jail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/kernelevents"
	"github.com/crannog/crannog/internal/fault"
)

// unseen lists what the observer does not see, because the host's kernel is asked from outside.
var unseen = []string{
	"the record of programs has no working directories, names a program as its caller named it, and shows a program that another one loads (ld.so, an interpreter's script) as an argument only",
	"the record of files is a comparison after each command: it lacks files that were created and removed in between, changes through memory maps that leave the file's times, new attributes of the host's directories, and which command changed a file; a replaced file of the host counts as created",
	"programs run although the record is full or its reader is too slow, and while no server runs; the audit log then has a gap with their number, if that is known",
}

// Reasons of gaps that this engine writes.
const (
	reasonFlood      = "flood"       // there was no room for the events
	reasonUnobserved = "not_watched" // no process observed the sandbox
	reasonSurvey     = "survey"      // changed files could not be read
)

// observing records what programs do in one sandbox, in the process that watches it.
type observing struct {
	b      *instance
	file   *os.File // a copy of the specification's descriptor
	lock   *os.File // held while this process writes events
	stream *kernelevents.Stream
	ns     uint32 // inode of the PID namespace
	view   *os.Root
	writer *events.Writer

	mu        sync.Mutex
	processes map[int]*observed
	dropped   uint64 // events without room, to be written as a gap
	ringLost  uint64 // lost events of the stream that were added to dropped

	surveyMu sync.Mutex
	files    fileRecord

	commandEnded chan struct{}
	stop         chan struct{}
	surveys      sync.WaitGroup
	closed       sync.Once
}

// storedEvents names the file of events in a sandbox's record, for a later server.
type storedEvents struct {
	Path  string `json:"path"`
	Inode uint64 `json:"inode"`
	Bytes int64  `json:"bytes"`
}

// observerLock is the file in a sandbox's directory that is locked by the process that observes.
const observerLock = "observer"

// prepareEvents adds the file of events to the record before the sandbox starts.
func (b *instance) prepareEvents(spec engine.Spec) error {
	if spec.Events == nil {
		return nil
	}
	info, err := spec.Events.Stat()
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", spec.Events.Fd()))
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	b.rec.Events = &storedEvents{Path: path, Inode: inodeOf(info), Bytes: spec.EventBytes}
	return nil
}

func inodeOf(info fs.FileInfo) uint64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return stat.Ino
}

// observe starts to record the programs of a sandbox, whose first process waits for its request.
func (b *instance) observe(file *os.File) (err error) {
	if file == nil {
		return nil
	}
	o := &observing{b: b, processes: map[int]*observed{}, commandEnded: make(chan struct{}, 1), stop: make(chan struct{})}
	defer func() {
		if err != nil {
			o.release()
		}
	}()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	o.file = os.NewFile(uintptr(fd), "events")
	if err := o.takeLock(); err != nil {
		return err
	}
	last, torn, err := events.End(o.file)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if o.writer, err = events.NewWriter(int(o.file.Fd()), last+1, b.rec.Events.Bytes, torn); err != nil {
		return err
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/ns/pid", b.rec.Init.PID))
	if err != nil {
		return b.orStopped(fmt.Errorf("events: %w", err))
	}
	o.ns = uint32(inodeOf(info)) // inodes of namespaces have 32 bits
	stream, err := kernelevents.Acquire()
	if err != nil {
		return fault.Wrap(err, fault.Unsupported, "events_unavailable", "what programs do in a jail cannot be recorded on this host").
			WithHint("crannog doctor shows the reason; or use another engine with the capability observer")
	}
	o.stream = stream
	if err := o.writer.Write(&events.Event{Kind: events.Began}, true); err != nil {
		return err
	}
	if err := stream.Watch(o.ns, o.process); err != nil {
		return err
	}
	b.observer.Store(o)
	return nil
}

// takeLock makes this process the only one that writes events of the sandbox.
func (o *observing) takeLock() error {
	f, err := os.OpenFile(filepath.Join(o.b.dir, observerLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(os.NewSyscallError("flock", err), f.Close())
	}
	o.lock = f
	return nil
}

// observeFiles begins to record changed files. The present files are those of the image.
func (b *instance) observeFiles() error {
	o := b.observer.Load()
	if o == nil {
		return nil
	}
	var err error
	if o.view, err = b.openView(); err == nil {
		err = b.checkView(o.view)
	}
	if err == nil {
		err = o.survey(context.Background(), true)
	}
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	o.surveys.Go(o.surveyCommands)
	return nil
}

// resume observes a sandbox that another process has created and does not observe any more. What
// happened in between is unknown, and recorded as a gap.
func (b *instance) resume() error {
	rec := b.rec.Events
	if rec == nil || b.rec.Exit != nil || b.e.blind != nil {
		return nil
	}
	file, err := os.OpenFile(rec.Path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the caller has removed it: nothing is to be recorded
	}
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || inodeOf(info) != rec.Inode {
		return err // it is the file of another sandbox
	}
	err = b.observe(file)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // another process observes the sandbox
	}
	if err != nil {
		return b.orStopped(err)
	}
	o := b.observer.Load()
	if err := o.writer.Write(&events.Event{Kind: events.Gap, Reason: reasonUnobserved}, true); err != nil {
		return err
	}
	o.files.resumed = true
	if err := b.observeFiles(); err != nil {
		return b.orStopped(err)
	}
	return nil
}

// Survey implements engine.Observer.
func (e *Engine) survey(ctx context.Context, id string) error {
	b, err := e.running(id)
	if err != nil {
		return err
	}
	o := b.observer.Load()
	if o == nil {
		return fault.Newf(fault.Conflict, engine.CodeNotWatched, "sandbox %q is not watched by this process", id)
	}
	if err := o.flush(ctx); err != nil {
		return b.orStopped(err)
	}
	return nil
}

// flush writes all events of what has happened so far.
func (o *observing) flush(ctx context.Context) error {
	if err := o.stream.Sync(); err != nil {
		return err
	}
	if err := o.writeDropped(); err != nil {
		return err
	}
	err := o.survey(ctx, false)
	if errors.Is(err, events.ErrFull) {
		return fault.Wrap(err, fault.Exhausted, engine.CodeEventsFull, fmt.Sprintf("changed files of sandbox %q are not recorded, because its file of events is full", o.b.rec.ID)).
			WithHint("shorten the file by what was read, and try again")
	}
	return err
}

// finish records the last events of a sandbox whose guest has ended, and stops observing.
func (o *observing) finish() {
	o.closed.Do(func() {
		close(o.stop)
		o.surveys.Wait()
		err := o.flush(context.Background())
		if err != nil {
			err = errors.Join(err, o.writer.Write(&events.Event{Kind: events.Gap, Reason: reasonSurvey}, true))
			o.b.e.log.Warn("record the last changes of a sandbox", "sandbox", o.b.rec.ID, "err", err)
		}
		o.release()
	})
}

// release frees the resources.
func (o *observing) release() {
	if o.stream != nil {
		o.stream.Leave(o.ns)
		kernelevents.Release()
	}
	if o.view != nil {
		_ = o.view.Close() // nothing was written to it
	}
	for _, f := range []*os.File{o.file, o.lock} {
		if f != nil {
			_ = f.Close() // what was written is in the file when write returns
		}
	}
}
