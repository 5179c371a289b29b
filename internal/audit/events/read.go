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

// Reasons of gaps that a Reader reports, beside those of the engine.
const (
	ReasonMissing   = "missing"       // numbers are left out
	ReasonMalformed = "malformed"     // a line is no event
	ReasonTooLong   = "line_too_long" // a line is longer than MaxLine
)

// Reader reads the whole lines of a file that grows, and that may have been
// shortened at its beginning by Free.
type Reader struct {
	f    io.ReaderAt
	data func(at int64) (int64, error) // where bytes begin that are there
	at   int64                         // of the next line
	last uint64                        // number of the last event
	buf  []byte                        // from at on
	skip bool                          // the line at at has lost its beginning
	held *Event                        // comes after a gap
	done int64                         // where the last event that was returned ends
}

// NewReader reads on at byte at, behind the event number last; both are 0 at
// the beginning. Events up to last are passed over.
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

// Offset is where the next event begins: all before it was returned, and may
// be freed.
func (r *Reader) Offset() int64 { return r.done }

// Next returns the next event, a Gap where some are missing, or io.EOF if
// there is none yet; it may be called again then.
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

// Parse reads one line, strictly.
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
		return Event{}, errors.New("event: without a number")
	}
	return e, nil
}

// line takes the next whole line and moves behind it. A line that is too long
// comes as its beginning; one that lost its own is nil.
func (r *Reader) line() ([]byte, error) {
	var long []byte
	start := r.at
	for {
		if len(r.buf) > 0 && r.buf[0] == 0 && long == nil {
			r.leap()
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
			// Only its beginning is kept, so that a writer without newlines
			// costs its reader nothing.
			long = append(long, r.buf...)[:MaxLine+1]
			r.at += int64(len(r.buf))
			r.buf = nil
		}
		if err := r.fill(); err != nil {
			if long != nil {
				r.at, r.buf = start, nil // begins again when there is more
			}
			return nil, err
		}
	}
}

// leap moves over bytes that were freed, into the line whose beginning was.
func (r *Reader) leap() {
	n := 0
	for n < len(r.buf) && r.buf[n] == 0 {
		n++
	}
	r.buf, r.at, r.skip = r.buf[n:], r.at+int64(n), true
}

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

// Last finds the last whole line: the number of its event and where it begins.
// Of an empty file both are 0.
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
	return 0, 0, errors.New("events: no whole event at the end of the file")
}

// Free gives back the disk that all before byte upTo takes, but for the last
// event, which says where numbers go on. The file keeps its size.
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
