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
func (p *growthWatch) watch(want bool) (next func() <-chan struct{}, stop func(), err error) {
	if !want {
		return nil, func() {}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readers == 0 {
		if err := p.start(); err != nil {
			return nil, nil, fmt.Errorf("watch audit log: %w", err)
		}
	}
	p.readers++
	return p.next, sync.OnceFunc(p.removeReader), nil
}

// next returns the channel of the next change, or nil if end was called.
func (p *growthWatch) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	return p.changed
}

// end makes all readers finish after the existing entries.
func (p *growthWatch) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended && p.readers > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.ended = true
}

func (p *growthWatch) start() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(fd, p.path, unix.IN_MODIFY); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	p.file, p.changed, p.done = os.NewFile(uintptr(fd), "inotify"), make(chan struct{}), make(chan struct{})
	go p.run(p.file, p.done)
	return nil
}

func (p *growthWatch) run(file *os.File, done chan struct{}) {
	defer close(done)
	buf := make([]byte, 4096)
	for {
		if _, err := file.Read(buf); err != nil {
			return // the last reader left
		}
		p.mu.Lock()
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
}

// removeReader ends the inotify watch with its last reader.
func (p *growthWatch) removeReader() {
	p.mu.Lock()
	p.readers--
	if p.readers > 0 {
		p.mu.Unlock()
		return
	}
	file, done := p.file, p.done
	p.file = nil
	err := file.Close()
	p.mu.Unlock()
	if err == nil {
		<-done
	}
}
