package asciicast

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	// DefaultBound is the default size limit of one recording, in bytes.
	DefaultBound = 8 << 20
	// reserve is the space for the last lines: the marker for omitted output and the exit status.
	reserve = 256
	// eventBytes is the maximum of output bytes in one event.
	eventBytes = 16 << 10
	// batchBytes is the number of bytes that are collected for one write.
	batchBytes = 32 << 10
)

// sources is the maximum number of streams in one recording.
const sources = 4

// LeftOut is the text of the marker after which output was omitted.
const LeftOut = "more output was not kept"

// Writer writes one recording. A time earlier than that of the previous event is replaced by the
// previous time.
type Writer struct {
	to    io.Writer
	bound int64
	size  int64         // bytes so far, including lines that are not written yet
	lines []byte        // collected lines that are not written yet
	at    time.Duration // time of the last event, in whole milliseconds
	part  [sources]fragment
	cut   bool  // output was omitted
	err   error // first error of a write
}

// fragment is the beginning of a UTF-8 character whose rest is in the next chunk.
type fragment struct {
	bytes [utf8.UTFMax]byte
	n     int
}

// NewWriter starts a recording of at most bound bytes. Zero means DefaultBound. It writes nothing
// before Flush is called or batchBytes are collected.
func NewWriter(to io.Writer, h Header, bound int64) (*Writer, error) {
	if bound <= 0 {
		bound = DefaultBound
	}
	w := &Writer{to: to, bound: bound}
	line := header{
		Version: 3, Term: term{Cols: sideOr(h.Cols, 80), Rows: sideOr(h.Rows, 24), Type: h.Type},
		Command: h.Command, Title: h.Title,
	}
	if !h.Time.IsZero() {
		line.Timestamp = h.Time.Unix()
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(line); err != nil {
		return nil, fmt.Errorf("begin a recording: %w", err)
	}
	if int64(text.Len()+reserve) > bound {
		return nil, fmt.Errorf("begin a recording: the limit of %d bytes is too small for the header", bound)
	}
	w.add(text.Bytes())
	return w, nil
}

// sideOr returns n columns or rows, or usual if that is not a valid number.
func sideOr(n, usual int) int {
	if n < 1 || n > maxSide {
		return usual
	}
	return n
}

// Output adds output from one source, numbered 0 to 3. It joins characters that were split between
// two chunks of a source, and replaces invalid UTF-8 by U+FFFD.
func (w *Writer) Output(at time.Duration, source int, data []byte) error {
	if w.cut {
		return w.err
	}
	part := &w.part[source]
	if part.n > 0 {
		for len(data) > 0 && part.n < utf8.UTFMax && !utf8.FullRune(part.bytes[:part.n]) {
			part.bytes[part.n] = data[0]
			part.n++
			data = data[1:]
		}
		if !utf8.FullRune(part.bytes[:part.n]) {
			return w.err
		}
		character := part.bytes
		n := part.n
		part.n = 0
		w.event(at, Output, character[:n])
	}
	last := len(data) - partialLen(data)
	part.n = copy(part.bytes[:], data[last:])
	for data = data[:last]; len(data) > 0; {
		n := completeEnd(data, eventBytes)
		w.event(at, Output, data[:n])
		data = data[n:]
	}
	return w.err
}

// partialLen returns the length of an incomplete character at the end of data.
func partialLen(data []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if tail := data[len(data)-i:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return i
		}
	}
	return 0
}

// completeEnd returns the end of the last complete character within n bytes.
func completeEnd(data []byte, n int) int {
	if len(data) <= n {
		return len(data)
	}
	for back := range utf8.UTFMax {
		if utf8.RuneStart(data[n-back]) {
			return n - back
		}
	}
	return n
}

// Resize records a new size of the terminal.
func (w *Writer) Resize(at time.Duration, cols, rows int) error {
	if cols >= 1 && rows >= 1 && cols <= maxSide && rows <= maxSide {
		w.event(at, Resize, fmt.Appendf(nil, "%dx%d", cols, rows))
	}
	return w.err
}

// Mark adds a marker.
func (w *Writer) Mark(at time.Duration, text string) error {
	w.event(at, Marker, []byte(text[:completeEnd([]byte(text), eventBytes)]))
	return w.err
}

// Exit adds the exit status of the command. Output must not follow.
func (w *Writer) Exit(at time.Duration, code int) error {
	w.flushPartial(at)
	w.last(at, Exit, strconv.AppendInt(nil, int64(code), 10))
	return w.err
}

// FlushPartial adds the incomplete characters at the end of the output.
func (w *Writer) FlushPartial(at time.Duration) error {
	w.flushPartial(at)
	return w.err
}

func (w *Writer) flushPartial(at time.Duration) {
	for i := range w.part {
		if p := &w.part[i]; p.n > 0 {
			w.event(at, Output, p.bytes[:p.n])
			p.n = 0
		}
	}
}

// Truncated reports whether output was omitted.
func (w *Writer) Truncated() bool { return w.cut }

// Size returns the size of the recording in bytes.
func (w *Writer) Size() int64 { return w.size }

// Flush writes all collected lines.
func (w *Writer) Flush() error {
	if len(w.lines) > 0 && w.err == nil {
		_, w.err = w.to.Write(w.lines)
	}
	w.lines = w.lines[:0]
	return w.err
}

// event adds a line if it fits within the limit. The first line that does not fit is replaced by a
// marker.
func (w *Writer) event(at time.Duration, code byte, data []byte) {
	if w.cut || w.err != nil {
		return
	}
	lines, moment := w.line(at, code, data)
	if w.size+int64(len(lines)-len(w.lines)) > w.bound-reserve {
		w.cut = true
		w.last(at, Marker, []byte(LeftOut))
		return
	}
	w.setLines(lines, moment)
}

// last adds a line from the reserved space.
func (w *Writer) last(at time.Duration, code byte, data []byte) {
	if w.err == nil {
		w.setLines(w.line(at, code, data))
	}
}

// line appends an event to the collected lines. Intervals are differences between whole
// milliseconds since the beginning, so that rounding errors do not add up.
func (w *Writer) line(at time.Duration, code byte, data []byte) (lines []byte, moment time.Duration) {
	at = max(at.Truncate(time.Millisecond), w.at)
	ms := (at - w.at).Milliseconds()
	lines = append(w.lines, '[')
	lines = strconv.AppendInt(lines, ms/1000, 10)
	lines = append(lines, '.', byte('0'+ms/100%10), byte('0'+ms/10%10), byte('0'+ms%10))
	lines = append(lines, ',', '"', code, '"', ',', '"')
	lines = appendText(lines, data)
	return append(lines, '"', ']', '\n'), at
}

// setLines replaces the collected lines, after an event at the time moment.
func (w *Writer) setLines(lines []byte, moment time.Duration) {
	n := len(lines) - len(w.lines)
	w.lines, w.at = lines, moment
	w.addSize(n)
}

// add copies a finished line.
func (w *Writer) add(line []byte) {
	w.lines = append(w.lines, line...)
	w.addSize(len(line))
}

// addSize counts n collected bytes, and writes the lines if there are enough.
func (w *Writer) addSize(n int) {
	w.size += int64(n)
	if len(w.lines) >= batchBytes {
		_ = w.Flush() // the next call returns the error
	}
}

const digits = "0123456789abcdef"

// appendText writes bytes as the content of a JSON string.
func appendText(dst, data []byte) []byte {
	for i := 0; i < len(data); {
		from := i
		for i < len(data) && data[i] >= ' ' && data[i] < utf8.RuneSelf && data[i] != '"' && data[i] != '\\' {
			i++
		}
		dst = append(dst, data[from:i]...)
		if i == len(data) {
			break
		}
		c := data[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(data[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		i++
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return dst
}
