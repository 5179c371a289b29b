package audit

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// pulse tells any number of readers that the log grew, whichever process wrote. They share one
// inotify watch, because the kernel limits their number for each user.
type pulse struct {
	path string // watches the file that grows with each write

	mu      sync.Mutex
	readers int
	ended   bool // no reader follows the log any more
	file    *os.File
	beat    chan struct{} // closed at the next change
	done    chan struct{}
}

// watch returns a function whose channel is closed at the next change, and a function that ends the
// watch.
func (p *pulse) watch(want bool) (next func() <-chan struct{}, stop func(), err error) {
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
	return p.next, sync.OnceFunc(p.leave), nil
}

// next returns the channel of the next change, or nil when following has ended.
func (p *pulse) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	return p.beat
}

// end lets all readers finish the entries that exist.
func (p *pulse) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended && p.readers > 0 {
		close(p.beat)
		p.beat = make(chan struct{})
	}
	p.ended = true
}

func (p *pulse) start() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	if _, err := unix.InotifyAddWatch(fd, p.path, unix.IN_MODIFY); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	p.file, p.beat, p.done = os.NewFile(uintptr(fd), "inotify"), make(chan struct{}), make(chan struct{})
	go p.run(p.file, p.done)
	return nil
}

func (p *pulse) run(file *os.File, done chan struct{}) {
	defer close(done)
	buf := make([]byte, 4096)
	for {
		if _, err := file.Read(buf); err != nil {
			return // the last reader left
		}
		p.mu.Lock()
		close(p.beat)
		p.beat = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *pulse) leave() {
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
