package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Reasons of gaps that a Reader detects. An engine has further reasons.
const (
	ReasonMissing   = "missing"       // numbers are missing
	ReasonMalformed = "malformed"     // a line is not an event
	ReasonTooLong   = "line_too_long" // a line is longer than MaxLine
)

// Reader reads the complete lines of a file that grows. Free may have released the beginning of the
// file.
type Reader struct {
	f    io.ReaderAt
	data func(at int64) (int64, error) // returns the first offset from at on that was not released
	at   int64                         // offset of the next line
	last uint64                        // number of the last event
	buf  []byte                        // bytes from at on
	skip bool                          // the beginning of the line at at was released
	held *Event                        // an event to return after a gap
	done int64                         // offset after the last returned event
}

// NewReader reads from offset at, after the event with the number last. Both are 0 at the beginning
// of a file. Events with numbers up to last are skipped.
func NewReader(f *os.File, at int64, last uint64) *Reader {
	return newReader(f, func(at int64) (int64, error) {
		at, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return 0, io.EOF
		}
		return at, err
	}, at, last)
}

func newReader(f io.ReaderAt, data func(int64) (int64, error), at int64, last uint64) *Reader {
	return &Reader{f: f, data: data, at: at, last: last, done: at}
}

// Offset returns the offset of the next event. All events before it were returned and may be freed.
func (r *Reader) Offset() int64 { return r.done }

// Next returns the next event, a Gap if some are missing, or io.EOF if there is none yet. After
// io.EOF it may be called again.
func (r *Reader) Next() (Event, error) {
	if e := r.held; e != nil {
		r.held, r.done = nil, r.at
		return *e, nil
	}
	for {
		line, err := r.line()
		if err != nil {
			return Event{}, err
		}
		if line == nil {
			continue
		}
		if len(line) > MaxLine {
			r.done = r.at
			return Event{Kind: Gap, Lost: 1, Reason: ReasonTooLong}, nil
		}
		e, err := Parse(line)
		if err != nil {
			r.done = r.at
			return Event{Kind: Gap, Lost: 1, Reason: ReasonMalformed}, nil
		}
		if e.Seq <= r.last {
			r.done = r.at
			continue
		}
		missing := e.Seq - r.last - 1
		first := r.last == 0 && r.done == 0
		r.last = e.Seq
		if missing > 0 && !first {
			r.held = &e
			return Event{Seq: e.Seq - missing, Time: e.Time, Kind: Gap, Lost: missing, Reason: ReasonMissing}, nil
		}
		r.done = r.at
		return e, nil
	}
}

// Parse parses one line strictly.
func Parse(line []byte) (Event, error) {
	var e Event
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return Event{}, fmt.Errorf("event: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Event{}, errors.New("event: more than one value in a line")
	}
	switch e.Kind {
	case Exec, Exit, File, Gap, Limit, Began:
	default:
		return Event{}, fmt.Errorf("event: unknown kind %q", e.Kind)
	}
	if e.Seq == 0 {
		return Event{}, errors.New("event: no number")
	}
	return e, nil
}

// line returns the next complete line and moves past it. If the line is too long, line returns only
// its beginning. If the beginning of the line was released, line returns nil.
func (r *Reader) line() ([]byte, error) {
	var long []byte
	start := r.at
	for {
		if len(r.buf) > 0 && r.buf[0] == 0 && long == nil {
			r.skipReleased()
			continue
		}
		if i := bytes.IndexByte(r.buf, '\n'); i >= 0 {
			line := r.buf[:i]
			r.buf, r.at = r.buf[i+1:], r.at+int64(i)+1
			switch {
			case long != nil:
				line = long
			case r.skip || len(line) == 0:
				line = nil
			}
			r.skip = false
			return line, nil
		}
		if len(r.buf) > MaxLine {
			// Only the beginning is stored, so that an endless line cannot exhaust the reader's
			// memory.
			long = append(long, r.buf...)[:MaxLine+1]
			r.at += int64(len(r.buf))
			r.buf = nil
		}
		if err := r.fill(); err != nil {
			if long != nil {
				r.at, r.buf = start, nil // continues when there is more data
			}
			return nil, err
		}
	}
}

// skipReleased skips released bytes, and the rest of a line whose beginning was released.
func (r *Reader) skipReleased() {
	n := 0
	for n < len(r.buf) && r.buf[n] == 0 {
		n++
	}
	r.buf, r.at, r.skip = r.buf[n:], r.at+int64(n), true
}

// fill reads the next bytes into the buffer.
func (r *Reader) fill() error {
	end := r.at + int64(len(r.buf))
	if len(r.buf) == 0 {
		at, err := r.data(end)
		if err != nil {
			return err
		}
		if at > end {
			r.at, end, r.skip = at, at, true
		}
	}
	chunk := make([]byte, 64<<10)
	n, err := r.f.ReadAt(chunk, end)
	r.buf = append(r.buf, chunk[:n]...)
	if n > 0 {
		return nil
	}
	return err
}

// Last finds the last complete line. It returns the number of its event and the offset of the line.
// Both are 0 for an empty file.
func Last(f *os.File) (seq uint64, at int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	if info.Size() == 0 {
		return 0, 0, nil
	}
	from := max(0, info.Size()-2*MaxLine)
	tail := make([]byte, info.Size()-from)
	n, err := f.ReadAt(tail, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	tail = tail[:n]
	for end := bytes.LastIndexByte(tail, '\n'); end >= 0; end = bytes.LastIndexByte(tail[:end], '\n') {
		start := bytes.LastIndexByte(tail[:end], '\n') + 1
		if e, err := Parse(tail[start:end]); err == nil {
			return e.Seq, from + int64(start), nil
		}
	}
	return 0, 0, errors.New("events: no complete event at the end of the file")
}

// Free releases the disk space of all bytes before upTo. It keeps the last event, whose number the
// next writer needs. The size of the file does not change.
func Free(f *os.File, upTo int64) error {
	_, last, err := Last(f)
	if err != nil {
		return err
	}
	const page = 4096
	end := min(upTo, last) &^ (page - 1)
	if end <= 0 {
		return nil
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, end); err != nil {
		return fmt.Errorf("free events: %w", err)
	}
	return nil
}
