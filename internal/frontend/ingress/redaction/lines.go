package redaction

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/crannog/crannog/internal/sandbox"
)

// maxLine bounds one line, which is held in memory: a result has up to 24 MiB.
const maxLine = 32 << 20

// lineReader redacts the interpreter's output. It redacts printed text across lines, and the other
// content of each line separately.
type lineReader struct {
	source *bufio.Reader
	mask   *sandbox.Redactor
	text   [2]struct { // standard output and standard error
		stream stream
		seen   textLine // the last line
	}
	pending
}

// textLine is a line of printed text.
type textLine struct {
	Type string `json:"type"`
	Text string `json:"text"`
	Time string `json:"timestamp,omitempty"`
}

func newLines(source io.Reader, m *sandbox.Redactor) *lineReader {
	r := &lineReader{source: bufio.NewReaderSize(source, eventBuffer), mask: m}
	for i := range r.text {
		r.text[i].stream.redactor = m.Text
	}
	return r
}

// Read returns complete lines.
func (r *lineReader) Read(b []byte) (int, error) { return r.read(b, r.fill) }

func (r *lineReader) fill() {
	for {
		line, copied, err := readLine(r.source)
		if err == nil || errors.Is(err, io.EOF) && len(line) > 0 {
			r.line(line, copied)
		}
		if errors.Is(err, io.EOF) {
			r.release()
		}
		if r.err = err; err != nil || len(r.out) >= batch || !lineReady(r.source) {
			return
		}
	}
}

func lineReady(source *bufio.Reader) bool {
	here, err := source.Peek(source.Buffered())
	return err == nil && bytes.IndexByte(here, '\n') >= 0
}

// readLine returns a line with its line break. If copied is false, the line is valid only until the
// next call. With io.EOF, the last line may have no line break.
func readLine(source *bufio.Reader) (line []byte, copied bool, err error) {
	line, err = source.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, false, err
	}
	var all []byte
	for {
		all = append(all, line...)
		if len(all) > maxLine {
			return nil, false, unreadable("contains a line that is too long")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return all, true, err
		}
		line, err = source.ReadSlice('\n')
	}
}

// line redacts one line. If copied is set, the line's memory may be kept.
func (r *lineReader) line(line []byte, copied bool) {
	// Find the kind first: the content of a result is redacted in place and need not be parsed
	// before.
	var kind struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &kind) == nil {
		switch kind.Type {
		case "stdout", "stderr":
			var t textLine
			// A line that is not an object of strings is not text.
			if json.Unmarshal(line, &t) == nil {
				from := 0
				if t.Type == "stderr" {
					from = 1
				}
				r.print(from, t)
				return
			}
		case "end_of_execution":
			r.release()
		}
	}
	masked := jsonMask{text: r.mask.Text(), pictures: r.mask.Bytes()}.mask(line)
	if copied && len(r.out) == 0 {
		r.out = masked
		return
	}
	r.out = append(r.out, masked...)
}

func (r *lineReader) print(i int, t textLine) {
	k := &r.text[i]
	k.seen = textLine{Type: t.Type, Time: t.Time} // without its text, which may have many MiB
	if masked := k.stream.append(nil, []byte(t.Text)); len(masked) > 0 || t.Text == "" {
		r.writeMasked(t, masked)
	}
}

// release writes text that was held back, because the execution has ended.
func (r *lineReader) release() {
	for i := range r.text {
		k := &r.text[i]
		if k.stream.s == nil {
			continue
		}
		if masked := k.stream.end(nil); len(masked) > 0 {
			r.writeMasked(k.seen, masked)
		}
	}
}

func (r *lineReader) writeMasked(t textLine, masked []byte) {
	t.Text = string(masked)
	e := json.NewEncoder((*appending)(&r.out))
	e.SetEscapeHTML(false)
	if err := e.Encode(t); err != nil { // strings always encode
		panic(err)
	}
}

// appending is a writer that appends to a slice.
type appending []byte

// Write appends b.
func (a *appending) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}
