package events

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxLine bounds a line. What an engine writes is shorter: it cuts arguments
// and names.
const MaxLine = 256 << 10

// ErrFull says that the file has as many bytes as it may.
var ErrFull = errors.New("the file of events is full until its reader frees some")

// Writer adds events to a file that it alone adds to. An event is in the file
// when Write returns: it is not lost if the process is killed afterwards.
type Writer struct {
	mu    sync.Mutex
	fd    int
	next  uint64
	limit int64
	// used is what the file takes of the disk, as far as it is known: asked
	// when it seems to be full, and counted from then on.
	used   int64
	torn   bool // a line was cut short and could not be taken back
	lost   uint64
	failed error
	since  time.Time // when the last write failed
	buf    []byte
}

// NewWriter writes to a descriptor that was opened to append, the next event
// as number next, until the file takes limit bytes of the disk. A file that is
// torn ends within a line, which is ended first.
func NewWriter(fd int, next uint64, limit int64, torn bool) (*Writer, error) {
	w := &Writer{fd: fd, next: next, limit: limit, torn: torn}
	return w, w.measure()
}

// Write numbers an event, sets its time, and writes it. Beyond the limit only
// what must is written: the end of a process that was seen to begin.
func (w *Writer) Write(e *Event, must bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.buf = w.buf[:0]
	if w.torn {
		w.buf = append(w.buf, '\n')
	}
	next := w.next
	if w.lost > 0 {
		w.buf = (&Event{Seq: next, Time: now, Kind: Gap, Lost: w.lost, Reason: ReasonFailed}).AppendTo(w.buf)
		next++
	}
	e.Seq, e.Time = next, now
	w.buf = e.AppendTo(w.buf)
	if !must {
		if err := w.room(int64(len(w.buf))); err != nil {
			return err
		}
	}
	if err := w.write(); err != nil {
		w.failed, w.since = err, now
		if must {
			w.lost++ // it has happened all the same
		}
		return err
	}
	w.failed, w.torn, w.lost = nil, false, 0
	w.next = next + 1
	w.used += int64(len(w.buf))
	if cap(w.buf) > MaxLine {
		w.buf = nil
	}
	return nil
}

// ReasonFailed is of a Gap: the ends of processes that the disk had no room
// for.
const ReasonFailed = "write_failed"

// retry is how long no action may begin after a write that failed. After that one may
// begin, since only another write shows that there is room again.
const retry = time.Second

// Room returns an error if an action whose event is written later must not begin.
func (w *Writer) Room() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil && time.Since(w.since) < retry {
		return w.failed
	}
	return w.room(0)
}

func (w *Writer) room(more int64) error {
	if w.used+more <= w.limit {
		return nil
	}
	if err := w.measure(); err != nil {
		return err
	}
	if w.used+more > w.limit {
		return ErrFull
	}
	return nil
}

func (w *Writer) measure() error {
	var stat unix.Stat_t
	if err := unix.Fstat(w.fd, &stat); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	w.used = stat.Blocks * 512
	return nil
}

func (w *Writer) write() error {
	for {
		n, err := w.once()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == len(w.buf):
			return nil
		case err == nil:
			// The disk is full in the middle of a line. It is taken back, so
			// that no reader sees an event of an action that was then rejected.
			w.takeBack(int64(n))
			err = unix.ENOSPC
		}
		return fmt.Errorf("events: %w", err)
	}
}

// once makes one write, without telling the Go scheduler. A write to a file does not
// block on another process, and handing over the processor costs more than the write.
func (w *Writer) once() (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(w.fd), uintptr(unsafe.Pointer(unsafe.SliceData(w.buf))), uintptr(len(w.buf)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (w *Writer) takeBack(n int64) {
	var stat unix.Stat_t
	err := unix.Fstat(w.fd, &stat)
	if err == nil {
		err = unix.Ftruncate(w.fd, stat.Size-n)
	}
	w.torn = w.torn || err != nil
}
