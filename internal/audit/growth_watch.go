package audit

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// growthWatch notifies any number of readers when the log has grown, also through other processes.
// The readers share one inotify watch, because the kernel limits the number of watches for each
// user.
type growthWatch struct {
	path string // file that grows with each write

	mu      sync.Mutex
	readers int
	ended   bool // no reader follows the log any more
	file    *os.File
	changed chan struct{} // closed at the next change
	done    chan struct{}
}

// watch returns a function whose channel is closed at the next change, and a function that stops
// watching. If want is false, watch does nothing, and next is nil.
func (w *growthWatch) watch(want bool) (next func() <-chan struct{}, stop func(), err error) {
	if !want {
		return nil, func() {}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.readers == 0 {
		if err := w.start(); err != nil {
			return nil, nil, fmt.Errorf("watch audit log: %w", err)
		}
	}
	w.readers++
	return w.next, sync.OnceFunc(w.removeReader), nil
}

// next returns the channel of the next change, or nil if end was called.
func (w *growthWatch) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	return w.changed
}

// end makes all readers finish after the existing entries.
func (w *growthWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended && w.readers > 0 {
		close(w.changed)
		w.changed = make(chan struct{})
	}
	w.ended = true
}

func (w *growthWatch) start() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(fd, w.path, unix.IN_MODIFY); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	w.file, w.changed, w.done = os.NewFile(uintptr(fd), "inotify"), make(chan struct{}), make(chan struct{})
	go w.run(w.file, w.done)
	return nil
}

func (w *growthWatch) run(file *os.File, done chan struct{}) {
	defer close(done)
	buf := make([]byte, 4096)
	for {
		if _, err := file.Read(buf); err != nil {
			return // the last reader left
		}
		w.mu.Lock()
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

// removeReader ends the inotify watch with its last reader.
func (w *growthWatch) removeReader() {
	w.mu.Lock()
	w.readers--
	if w.readers > 0 {
		w.mu.Unlock()
		return
	}
	file, done := w.file, w.done
	w.file = nil
	err := file.Close()
	w.mu.Unlock()
	if err == nil {
		<-done
	}
}
