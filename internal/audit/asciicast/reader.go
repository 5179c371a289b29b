package asciicast

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Reader reads one recording. It returns an error if the recording is invalid.
type Reader struct {
	lines  *bufio.Reader
	number int // number of the last line
	header Header
	at     time.Duration // time of the last event
}

// NewReader reads the header and returns a reader for the events.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{lines: bufio.NewReaderSize(from, 64<<10)}
	line, err := r.line()
	if errors.Is(err, io.EOF) {
		err = errors.New("the recording is empty")
	}
	if err != nil {
		return nil, err
	}
	var h header
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return nil, r.lineError("%v", err)
	}
	if rest, err := io.ReadAll(d.Buffered()); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, r.lineError("there is more data after the header")
	}
	if h.Version != 3 {
		return nil, r.lineError("the version is %d, but must be 3", h.Version)
	}
	if sideOr(h.Term.Cols, 0) == 0 || sideOr(h.Term.Rows, 0) == 0 {
		return nil, r.lineError("a terminal cannot have %d columns and %d rows", h.Term.Cols, h.Term.Rows)
	}
	r.header = Header{Cols: h.Term.Cols, Rows: h.Term.Rows, Type: h.Term.Type, Command: h.Command, Title: h.Title}
	if h.Timestamp != 0 {
		r.header.Time = time.Unix(h.Timestamp, 0).UTC()
	}
	return r, nil
}

// Header returns the values of the first line.
func (r *Reader) Header() Header { return r.header }

// Next returns the next event, io.EOF at the end, and ErrCut at the end of an unfinished recording.
func (r *Reader) Next() (Event, error) {
	for {
		line, err := r.line()
		if err != nil {
			return Event{}, err
		}
		if line[0] != '#' {
			return r.event(line)
		}
	}
}

// line returns the next line without its line break. An empty line is an error.
func (r *Reader) line() ([]byte, error) {
	r.number++
	line, err := r.lines.ReadSlice('\n')
	var long []byte
	for errors.Is(err, bufio.ErrBufferFull) {
		if long = append(long, line...); len(long) > maxLine {
			return nil, r.lineError("it is longer than %d bytes", maxLine)
		}
		line, err = r.lines.ReadSlice('\n')
	}
	if long != nil {
		line = append(long, line...)
	}
	switch {
	case len(line) > maxLine:
		return nil, r.lineError("it is longer than %d bytes", maxLine)
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, ErrCut
	case err != nil:
		return nil, err
	case !utf8.Valid(line):
		return nil, r.lineError("it is not UTF-8")
	}
	if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
		return nil, r.lineError("it is empty")
	}
	return line, nil
}

// event parses a line as the next event.
func (r *Reader) event(line []byte) (Event, error) {
	var fields []json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || len(fields) != 3 {
		return Event{}, r.lineError("it is not a list of interval, code and data")
	}
	var interval *float64
	var code, data *string
	if json.Unmarshal(fields[0], &interval) != nil || json.Unmarshal(fields[1], &code) != nil || json.Unmarshal(fields[2], &data) != nil ||
		interval == nil || code == nil || data == nil {
		return Event{}, r.lineError("it is not a list of interval, code and data")
	}
	if *interval < 0 || *interval > maxTime.Seconds() {
		return Event{}, r.lineError("the interval %v is out of range", *interval)
	}
	if r.at += time.Duration(math.Round(*interval * float64(time.Second))); r.at > maxTime {
		return Event{}, r.lineError("its time is later than the limit of %v", maxTime)
	}
	if len(*code) != 1 {
		return Event{}, r.lineError("unknown event code %q", *code)
	}
	e := Event{At: r.at, Code: (*code)[0], Data: *data}
	if !e.valid() {
		return Event{}, r.lineError("an event %q cannot have the data %.40q", *code, *data)
	}
	return e, nil
}

// valid reports whether the data of an event is valid for its code.
func (e Event) valid() bool {
	switch e.Code {
	case Output, Input, Marker:
		return true
	case Resize:
		_, _, ok := e.Size()
		return ok
	case Exit:
		_, ok := e.Status()
		return ok
	}
	return false
}

// Size returns the terminal size of a Resize event.
func (e Event) Size() (cols, rows int, ok bool) {
	c, r, ok := strings.Cut(e.Data, "x")
	cols, err := strconv.Atoi(c)
	rows, err2 := strconv.Atoi(r)
	return cols, rows, ok && err == nil && err2 == nil && sideOr(cols, 0) > 0 && sideOr(rows, 0) > 0
}

// Status returns the exit status of an Exit event.
func (e Event) Status() (int, bool) {
	n, err := strconv.ParseInt(e.Data, 10, 32)
	return int(n), err == nil
}

// lineError returns an error that names the number of the last line.
func (r *Reader) lineError(format string, args ...any) error {
	return fmt.Errorf("line %d of the recording: "+format, append([]any{r.number}, args...)...)
}
