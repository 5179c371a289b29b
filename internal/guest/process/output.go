package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

// Maximum sizes of one data event.
const (
	pipeChunk = 32 << 10
	ttyChunk  = 16 << 10
)

// maxDrain limits how much is read from a pipe after its deadline to the size of the largest
// pipe. Otherwise a child process that keeps writing could keep the stream open for ever.
const maxDrain = 1 << 20

// buffers contains read buffers. They are used only while there is data, so a silent process needs
// none.
var buffers = sync.Pool{New: func() any { b := make([]byte, pipeChunk); return &b }}

// eventQueue is the number of events by which a listener may lag behind. Queued events are written
// together.
const eventQueue = 4

// listener is one stream that shows the output of a process.
type listener struct {
	events chan *pb.ProcessEvent
	left   chan struct{} // closed when the receiver has left
}

// output passes events to all listeners. Without a listener, output is discarded so that it never
// blocks the process. Otherwise the slowest listener determines the speed, so that memory stays
// bounded.
type output struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	end       *pb.ProcessEvent
	// detach means that a pipe is still read after its deadline. Otherwise a background process
	// would be killed by its next write to the pipe.
	detach atomic.Bool
}

// join adds a listener for all later events. After the process has ended, the listener gets only
// the end.
func (o *output) join() *listener {
	l := &listener{events: make(chan *pb.ProcessEvent, eventQueue), left: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.end != nil {
		l.events <- o.end
		return l
	}
	if o.listeners == nil {
		o.listeners = map[*listener]struct{}{}
	}
	o.listeners[l] = struct{}{}
	return l
}

// leave removes a listener and unblocks a pump that waits for it.
func (o *output) leave(l *listener) {
	o.mu.Lock()
	delete(o.listeners, l)
	o.mu.Unlock()
	close(l.left)
}

func (o *output) currentListeners() []*listener {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.listeners) == 0 {
		return nil
	}
	all := make([]*listener, 0, len(o.listeners))
	for l := range o.listeners {
		all = append(all, l)
	}
	return all
}

func publish(to []*listener, e *pb.ProcessEvent) {
	for _, l := range to {
		select {
		case l.events <- e:
		case <-l.left:
		}
	}
}

// finish sends the end event to all listeners, including later ones.
func (o *output) finish(end *pb.ProcessEvent) {
	o.mu.Lock()
	o.end = end
	o.mu.Unlock()
	publish(o.currentListeners(), end)
}

// defaultPipe is the default size of a pipe, and largePipe the size for bulk data. The size matters
// because the peer must be woken each time that a pipe is empty or full.
const (
	defaultPipe = 64 << 10
	largePipe   = 256 << 10
)

// enlargePipe enlarges a pipe if the kernel allows it.
func enlargePipe(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) {
		// This fails for a terminal, or a pipe at the kernel's limit.
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe)
	})
}

// enlargeAfter is the number of consecutive full chunks that count as bulk data.
const enlargeAfter = 4

// forward passes on the output of f until it ends or its deadline passes. It then closes f, or lets
// discard close it when no process holds it any more.
func (o *output) forward(f *os.File, size int, wrap func([]byte) *pb.ProcessEvent) {
	keep := false
	defer func() {
		if !keep {
			_ = f.Close() // only read from
		}
	}()
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	full := 0
	for {
		n, err := o.forwardOnce(raw.Read, size, wrap)
		if n < size {
			full = 0
		} else if full++; full == enlargeAfter {
			enlargePipe(f)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.drain(raw, size, wrap)
			if keep = o.detach.Load() && f.SetReadDeadline(time.Time{}) == nil; keep {
				go discard(f)
			}
			return
		}
		if n <= 0 || err != nil {
			return // a terminal whose other side is closed returns EIO
		}
	}
}

// discard reads a pipe to its end and closes it.
func discard(f *os.File) {
	_, _ = io.Copy(io.Discard, f) // only its end matters
	_ = f.Close()
}

// drain passes on the data that is already in the pipe.
func (o *output) drain(raw syscall.RawConn, size int, wrap func([]byte) *pb.ProcessEvent) {
	once := func(read func(uintptr) bool) error {
		return raw.Control(func(fd uintptr) { read(fd) })
	}
	for total := 0; total < maxDrain; {
		n, err := o.forwardOnce(once, size, wrap)
		if n <= 0 || err != nil {
			return
		}
		total += n
	}
}

// forwardOnce reads one chunk and passes it on.
func (o *output) forwardOnce(read func(func(uintptr) bool) error, size int, wrap func([]byte) *pb.ProcessEvent) (int, error) {
	var (
		n    int
		errs error
		data []byte
		to   []*listener
	)
	err := read(func(fd uintptr) bool {
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		n, errs = ignoringEINTR(int(fd), (*buf)[:size], syscall.Read)
		if errors.Is(errs, syscall.EAGAIN) {
			return false
		}
		if n > 0 {
			if to = o.currentListeners(); to != nil {
				data = bytes.Clone((*buf)[:n])
			}
		}
		return true
	})
	if data != nil {
		publish(to, wrap(data))
	}
	return n, errors.Join(err, errs)
}

func stdoutEvent(data []byte) *pb.ProcessEvent {
	return dataEvent(&pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: data}})
}

func stderrEvent(data []byte) *pb.ProcessEvent {
	return dataEvent(&pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stderr{Stderr: data}})
}

func ttyEvent(data []byte) *pb.ProcessEvent {
	return dataEvent(&pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Pty{Pty: data}})
}

func dataEvent(data *pb.ProcessEvent_DataEvent) *pb.ProcessEvent {
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: data}}
}
