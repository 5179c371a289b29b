// Package watch owns reporting file changes below a directory.
package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Op is what happened to an entry.
type Op int

const (
	Create Op = iota + 1
	Write
	Remove
	Rename
	Chmod
)

// Event is one change. Name is relative to the watched directory, which is ".".
type Event struct {
	Name string
	Op   Op
}

// Errors of a watcher.
var (
	ErrOverflow = errors.New("more changed than could be reported; some events are lost")
	ErrTooMany  = errors.New("too many directories to watch")
	ErrRoot     = errors.New("the watched directory is gone")
)

// maxDirs limits the directories of one watcher. Each needs memory here and in the kernel.
const maxDirs = 32_768

const mask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_DELETE_SELF |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// Watcher reports changes until it is closed or fails.
type Watcher struct {
	root      string
	recursive bool
	as        func(work func() error) error // calls its argument with the user's rights
	file      *os.File
	events    chan Event
	closed    chan struct{}
	once      sync.Once
	finished  chan struct{}
	err       error // set before events is closed

	// The maps are used by New and then only by the reading goroutine.
	dirs          map[int]string                 // watched directories by watch descriptor
	wds           map[string]int                 // watch descriptors by directory
	reportedEarly map[string]map[string]struct{} // by directory, names that were reported before their event
}

// New watches root, and with recursive everything below it. as must run its argument with the
// rights of the user for whom the events are.
func New(root string, recursive bool, as func(func() error) error) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &Watcher{
		root: root, recursive: recursive, as: as,
		file:   os.NewFile(uintptr(fd), "inotify"),
		events: make(chan Event, 64), closed: make(chan struct{}), finished: make(chan struct{}),
		dirs: map[int]string{}, wds: map[string]int{}, reportedEarly: map[string]map[string]struct{}{},
	}
	err = as(func() error { return w.addTree(fd, ".", nil) })
	if err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	go w.run(fd)
	return w, nil
}

// Events returns the channel of changes. It is closed when the watcher ends.
func (w *Watcher) Events() <-chan Event { return w.events }

// Err returns why Events was closed. It is nil after Close.
func (w *Watcher) Err() error {
	<-w.finished
	return w.err
}

// Close ends the watcher. It may be called more than once.
func (w *Watcher) Close() {
	w.stop()
	<-w.finished
}

// stop wakes the reading goroutine, which closes the file itself. The descriptor's number must not
// be reused while it is in use.
func (w *Watcher) stop() {
	w.once.Do(func() {
		close(w.closed)
		_ = w.file.SetReadDeadline(time.Unix(1, 0)) // fails only if it is closed
	})
}

// run reads events until the watcher is closed or fails.
func (w *Watcher) run(fd int) {
	defer close(w.finished)
	defer close(w.events)
	defer w.file.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err == nil {
			err = w.handle(fd, buf[:n])
		}
		if err == nil {
			continue
		}
		select {
		case <-w.closed:
		default:
			w.err = err
			w.stop()
		}
		return
	}
}

// send sends one event. It returns os.ErrClosed when the watcher is closed.
func (w *Watcher) send(dir, name string, op Op) error {
	select {
	case w.events <- Event{Name: filepath.Join(dir, name), Op: op}:
		return nil
	case <-w.closed:
		return os.ErrClosed
	}
}
