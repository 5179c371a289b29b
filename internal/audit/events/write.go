package events

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxLine limits a line. An engine writes shorter lines, because it shortens arguments and names.
const MaxLine = 256 << 10

// ErrFull is returned when the file has reached its limit.
var ErrFull = errors.New("the file of events is full until its reader frees space")

// Writer appends events to a file and is its only writer. When Write returns, the event is in the
// file and survives if the process is killed.
type Writer struct {
	mu    sync.Mutex
	fd    int
	next  uint64 // number of the next event
	limit int64  // maximum disk space in bytes
	// used is the estimated disk space of the file. It is counted, and measured again when the file
	// seems to be full.
	used   int64
	torn   bool      // a line was cut short and could not be removed
	lost   uint64    // events that have happened and could not be written
	failed error     // error of the last write
	since  time.Time // time of that error
	buf    []byte
}

// NewWriter appends to a descriptor that was opened with O_APPEND. The next event gets the number
// next. The file may use limit bytes of disk space. torn means that the file ends within a line,
// which is then terminated first.
func NewWriter(fd int, next uint64, limit int64, torn bool) (*Writer, error) {
	w := &Writer{fd: fd, next: next, limit: limit, torn: torn}
	return w, w.measure()
}

// Write numbers an event, sets its time and writes it. must is set for an event that has already
// happened: the end of a process whose start was written. Only such an event may exceed the limit.
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
			w.lost++ // the process has ended in any case
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

// ReasonFailed is the reason of a Gap for ends of processes that did not fit on the disk.
const ReasonFailed = "write_failed"

// retry is how long no action may begin after a failed write. After that an action may begin,
// because only another write shows whether there is space again.
const retry = time.Second

// Reserve returns an error if there is no space for the event of an action. The action must not
// begin then.
func (w *Writer) Reserve() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil && time.Since(w.since) < retry {
		return w.failed
	}
	return w.room(0)
}

// room returns ErrFull if the file has no space for more bytes.
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

// measure sets used to the disk space of the file.
func (w *Writer) measure() error {
	var stat unix.Stat_t
	if err := unix.Fstat(w.fd, &stat); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	w.used = stat.Blocks * 512
	return nil
}

// write writes buf completely, or nothing of it.
func (w *Writer) write() error {
	for {
		n, err := w.writeOnce()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == len(w.buf):
			return nil
		case err == nil:
			// The disk was full in the middle of a line. Remove it, so that no reader sees an event
			// of an action that was then rejected.
			w.removeTail(int64(n))
			err = unix.ENOSPC
		}
		return fmt.Errorf("events: %w", err)
	}
}

// writeOnce makes one write without notifying the Go scheduler. A write to a file does not wait for
// another process, and notifying the scheduler costs more than the write.
func (w *Writer) writeOnce() (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(w.fd), uintptr(unsafe.Pointer(unsafe.SliceData(w.buf))), uintptr(len(w.buf)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// removeTail removes the last n bytes of the file.
func (w *Writer) removeTail(n int64) {
	var stat unix.Stat_t
	err := unix.Fstat(w.fd, &stat)
	if err == nil {
		err = unix.Ftruncate(w.fd, stat.Size-n)
	}
	w.torn = w.torn || err != nil
}
