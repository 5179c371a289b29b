package masking

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

// lineReader masks what the interpreter says. Text that code prints is masked
// over all its lines; what else a line says, for itself.
type lineReader struct {
	source *bufio.Reader
	mask   *sandbox.Mask
	text   [2]struct { // standard output and error
		stream stream
		seen   textLine // the last one
	}
	pending
}

// textLine is a line of printed text.
type textLine struct {
	Type string `json:"type"`
	Text string `json:"text"`
	Time string `json:"timestamp,omitempty"`
}

func newLines(source io.Reader, m *sandbox.Mask) *lineReader {
	r := &lineReader{source: bufio.NewReaderSize(source, eventBuffer), mask: m}
	for i := range r.text {
		r.text[i].stream.redactor = m.Text
	}
	return r
}

// Read gives whole lines.
func (r *lineReader) Read(b []byte) (int, error) { return r.read(b, r.fill) }

func (r *lineReader) fill() {
	for {
		line, err := readLine(r.source)
		if err == nil || errors.Is(err, io.EOF) && len(line) > 0 {
			r.line(line)
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

// readLine returns a line with its end, valid until the next call. With io.EOF
// the last one may have none.
func readLine(source *bufio.Reader) ([]byte, error) {
	line, err := source.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	var all []byte
	for {
		all = append(all, line...)
		if len(all) > maxLine {
			return nil, unreadable("has a line that is too long")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return all, err
		}
		line, err = source.ReadSlice('\n')
	}
}

func (r *lineReader) line(line []byte) {
	var t textLine
	// What is no object of strings is no text: a result has other fields, whose
	// types may differ.
	if json.Unmarshal(line, &t) == nil {
		switch t.Type {
		case "stdout":
			r.print(0, t)
			return
		case "stderr":
			r.print(1, t)
			return
		case "end_of_execution":
			r.release()
		}
	}
	r.out = append(r.out, jsonMask{text: r.mask.Text(), pictures: r.mask.Bytes()}.mask(line)...)
}

func (r *lineReader) print(i int, t textLine) {
	k := &r.text[i]
	k.seen = t
	if masked := k.stream.append(nil, []byte(t.Text)); len(masked) > 0 || t.Text == "" {
		r.say(t, masked)
	}
}

// release gives out what is held: the execution is over.
func (r *lineReader) release() {
	for i := range r.text {
		k := &r.text[i]
		if k.stream.s == nil {
			continue
		}
		if masked := k.stream.end(nil); len(masked) > 0 {
			r.say(k.seen, masked)
		}
	}
}

func (r *lineReader) say(t textLine, masked []byte) {
	t.Text = string(masked)
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(t); err != nil { // strings always encode
		panic(err)
	}
	r.out = append(r.out, line.Bytes()...)
}
