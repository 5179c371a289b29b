package changeset

import (
	"bufio"
	"encoding/json"
	"io"
	"unicode/utf8"
)

// Encoder writes a tree in the format that ReadTree reads. Its methods are not safe for concurrent
// use.
type Encoder struct {
	w     *bufio.Writer
	lines *json.Encoder
	count int
}

// NewEncoder returns an Encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder {
	b := bufio.NewWriterSize(w, 64<<10)
	lines := json.NewEncoder(b)
	lines.SetEscapeHTML(false)
	return &Encoder{w: b, lines: lines}
}

// Put writes one entry.
func (e *Encoder) Put(x Entry) error {
	l := line{Type: x.Type, Mode: x.Mode, Size: x.Size, MTime: x.MTime.UnixNano(), CTime: x.CTime.UnixNano(), Sum: x.Sum, Opaque: x.Opaque}
	l.Path, l.Raw = textOrRaw(x.Path)
	l.Target, l.RawTarget = textOrRaw(x.Target)
	e.count++
	return e.lines.Encode(&l)
}

// textOrRaw returns a name as bytes if JSON would change it, because two different names must never
// become equal.
func textOrRaw(name string) (string, []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return "", []byte(name)
}

// Close writes the last line, without which the tree counts as truncated.
func (e *Encoder) Close() error {
	if err := e.lines.Encode(&line{End: true, Count: e.count}); err != nil {
		return err
	}
	return e.w.Flush()
}
