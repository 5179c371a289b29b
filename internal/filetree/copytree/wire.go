// Package copytree owns copying files and directories into, out of and between sandboxes: the
// stream format, reading files into a stream, and writing a stream to a file system.
//
// A stream names each file relative to the directory that is currently open, never by a path. A
// reader therefore resolves no paths, and no stream can write files outside of the destination.
package copytree

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// ContentType is the media type of a stream.
const ContentType = "application/x-crannog-copy"

// magic is the beginning of a stream, with its version.
const magic = "crannog-copy 1\n"

// Kind is the type of an entry.
type Kind byte

// Kinds of entries.
const (
	Dir     Kind = 'd'
	File    Kind = 'f'
	Link    Kind = 'l' // a symbolic link
	LeftOut Kind = 'x' // a socket, a device or a named pipe: the stream has only its name
)

// Other operations of a stream.
const (
	opData  = 'D'
	opEnd   = 'e' // of the open file or directory
	opError = 'E'
	opClose = 'z'
)

// Limits of a stream.
const (
	// MaxData is the maximum size of one piece of content.
	MaxData    = 256 << 10
	maxName    = 255
	maxTarget  = 4095
	maxText    = 1024
	maxDepth   = 512
	maxEntries = 10_000_000
)

// Entry is one file, directory or link.
type Entry struct {
	Kind Kind
	// Name is relative to the open directory. The name of the first entry is that of the source,
	// and may be empty.
	Name     string
	Mode     uint32 // permissions, with the sticky bit
	ModTime  time.Time
	UID, GID uint32
	Size     int64
	Target   string // target of a link
}

// Frame is one step of a stream: the beginning of an entry, a piece of content, or an end.
type Frame struct {
	Entry  *Entry // of the beginning of an entry
	Data   []byte // of a piece of content; valid until the next call
	Offset int64  // of Data
	End    bool   // the open file or directory ends
}

// SourceError is an error that the source of a stream reports instead of the rest.
type SourceError struct{ Text string }

func (e *SourceError) Error() string { return e.Text }

// ErrMalformed is wrapped by the errors for an invalid stream.
var ErrMalformed = errors.New("the copy is malformed")

// malformed returns an error that wraps ErrMalformed.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Frames is a stream that is read step by step. Next returns io.EOF after the end of a complete
// stream.
type Frames interface{ Next() (Frame, error) }

// First reads the first entry of a stream, which describes the source, and returns it with the
// whole stream.
func First(r *Reader) (Entry, Frames, error) {
	f, err := r.Next()
	if err == nil && f.Entry == nil {
		err = malformed("it does not begin with a file")
	}
	if err != nil {
		return Entry{}, nil, err
	}
	e := *f.Entry
	return e, &prefixed{first: &f, rest: r}, nil
}

// prefixed is a stream from which the first frame was already read.
type prefixed struct {
	first *Frame
	rest  Frames
}

// Next implements Frames.
func (a *prefixed) Next() (Frame, error) {
	if f := a.first; f != nil {
		a.first = nil
		return *f, nil
	}
	return a.rest.Next()
}

// Writer writes a stream.
type Writer struct {
	w       *bufio.Writer
	scratch []byte
}

// NewWriter returns a Writer that has written the beginning of the stream.
func NewWriter(w io.Writer) *Writer {
	b := bufio.NewWriterSize(w, MaxData+64)
	_, _ = b.WriteString(magic) // an error is sticky, and the next call returns it
	return &Writer{w: b}
}

// Entry begins an entry. Files and directories end with End.
func (w *Writer) Entry(e Entry) error {
	b := append(w.scratch[:0], byte(e.Kind))
	b = appendText(b, e.Name)
	if e.Kind != LeftOut {
		b = binary.AppendUvarint(b, uint64(e.Mode))
		b = binary.AppendVarint(b, e.ModTime.Unix())
		b = binary.AppendUvarint(b, uint64(e.ModTime.Nanosecond()))
		b = binary.AppendUvarint(b, uint64(e.UID))
		b = binary.AppendUvarint(b, uint64(e.GID))
	}
	switch e.Kind {
	case File:
		b = binary.AppendUvarint(b, uint64(e.Size))
	case Link:
		b = appendText(b, e.Target)
	case Dir, LeftOut:
	}
	return w.put(b)
}

// Data writes a piece of content of at most MaxData bytes. Ranges that no piece covers are holes.
func (w *Writer) Data(offset int64, p []byte) error {
	b := append(w.scratch[:0], opData)
	b = binary.AppendUvarint(b, uint64(offset))
	b = binary.AppendUvarint(b, uint64(len(p)))
	if err := w.put(b); err != nil {
		return err
	}
	_, err := w.w.Write(p)
	return err
}

// End ends the open file or directory.
func (w *Writer) End() error { return w.put(append(w.scratch[:0], opEnd)) }

// Fail ends the stream with an error.
func (w *Writer) Fail(text string) error {
	if len(text) > maxText {
		text = text[:maxText]
	}
	if err := w.put(appendText(append(w.scratch[:0], opError), text)); err != nil {
		return err
	}
	return w.w.Flush()
}

// Close ends the stream. A stream without this end counts as truncated.
func (w *Writer) Close() error {
	if err := w.put(append(w.scratch[:0], opClose)); err != nil {
		return err
	}
	return w.w.Flush()
}

// Flush writes buffered data.
func (w *Writer) Flush() error { return w.w.Flush() }

// Frame writes a step that a Reader has read.
func (w *Writer) Frame(f Frame) error {
	switch {
	case f.Entry != nil:
		return w.Entry(*f.Entry)
	case f.End:
		return w.End()
	}
	return w.Data(f.Offset, f.Data)
}

// put writes the bytes of one step. It keeps their buffer for the next step.
func (w *Writer) put(b []byte) error {
	w.scratch = b
	_, err := w.w.Write(b)
	return err
}

// appendText appends a text with its length.
func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Reader reads a stream and rejects one that breaks the rules: names with a slash, content beyond a
// file's size, ends without a beginning.
type Reader struct {
	r       *bufio.Reader
	started bool
	closed  bool
	depth   int    // open directories
	file    *Entry // the open file
	at      int64  // minimum offset of the next piece
	entries int
	buffer  []byte
}

// NewReader returns a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Depth returns how many directories are open.
func (r *Reader) Depth() int { return r.depth }

// Next returns the next step, or io.EOF after the end of a complete stream.
func (r *Reader) Next() (Frame, error) {
	f, err := r.next()
	if errors.Is(err, io.EOF) && !r.closed {
		err = io.ErrUnexpectedEOF
	}
	return f, err
}

// next is Next without the check for a truncated stream.
func (r *Reader) next() (Frame, error) {
	if r.closed {
		return Frame{}, io.EOF
	}
	if !r.started {
		head := make([]byte, len(magic))
		if _, err := io.ReadFull(r.r, head); err != nil {
			return Frame{}, err
		}
		if string(head) != magic {
			return Frame{}, malformed("it has another version, or is not a copy")
		}
		r.started = true
	}
	op, err := r.r.ReadByte()
	if err != nil {
		return Frame{}, err
	}
	open := r.depth > 0 || r.file != nil
	switch op {
	case byte(Dir), byte(File), byte(Link), byte(LeftOut):
		if r.file != nil || !open && r.entries > 0 {
			return Frame{}, malformed("an entry is in no directory")
		}
		return r.entry(Kind(op))
	case opData:
		return r.data()
	case opEnd:
		switch {
		case r.file != nil:
			r.file = nil
		case r.depth > 0:
			r.depth--
		default:
			return Frame{}, malformed("an end without a beginning")
		}
		return Frame{End: true}, nil
	case opError:
		text, err := r.text(maxText)
		if err != nil {
			return Frame{}, err
		}
		return Frame{}, &SourceError{text}
	case opClose:
		if open || r.entries == 0 {
			return Frame{}, malformed("it ends too early")
		}
		r.closed = true
		return Frame{}, io.EOF
	}
	return Frame{}, malformed("the step %q is unknown", op)
}

// entry reads an entry after its first byte.
func (r *Reader) entry(kind Kind) (Frame, error) {
	e := &Entry{Kind: kind}
	var err error
	if e.Name, err = r.text(maxName); err != nil {
		return Frame{}, err
	}
	if top := r.depth == 0; (!top || e.Name != "") && !plainName(e.Name) {
		return Frame{}, malformed("%q is not a file name", e.Name)
	}
	if r.entries++; r.entries > maxEntries {
		return Frame{}, malformed("it has more than %d files", maxEntries)
	}
	if kind != LeftOut {
		if err := r.attributes(e); err != nil {
			return Frame{}, err
		}
	}
	switch kind {
	case Dir:
		if r.depth++; r.depth > maxDepth {
			return Frame{}, malformed("directories are nested more than %d deep", maxDepth)
		}
	case File:
		size, err := r.uint(1<<63 - 1)
		if err != nil {
			return Frame{}, err
		}
		e.Size = int64(size)
		r.file, r.at = e, 0
	case Link:
		if e.Target, err = r.text(maxTarget); err != nil {
			return Frame{}, err
		}
		if e.Target == "" || strings.IndexByte(e.Target, 0) >= 0 {
			return Frame{}, malformed("a link has no target")
		}
	case LeftOut:
	}
	return Frame{Entry: e}, nil
}

// plainName reports whether a name is that of a file in a directory.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && strings.IndexByte(name, '/') < 0 && strings.IndexByte(name, 0) < 0
}

// attributes reads the mode, time and owner of an entry.
func (r *Reader) attributes(e *Entry) error {
	mode, err := r.uint(0o7777)
	if err != nil {
		return err
	}
	sec, err := binary.ReadVarint(r.r)
	if err != nil {
		return numberError(err)
	}
	nsec, err := r.uint(999_999_999)
	if err != nil {
		return err
	}
	uid, err := r.uint(1<<32 - 2)
	if err != nil {
		return err
	}
	gid, err := r.uint(1<<32 - 2)
	if err != nil {
		return err
	}
	e.Mode, e.ModTime, e.UID, e.GID = uint32(mode), time.Unix(sec, int64(nsec)), uint32(uid), uint32(gid)
	return nil
}

// data reads a piece of content after its first byte.
func (r *Reader) data() (Frame, error) {
	if r.file == nil {
		return Frame{}, malformed("content without a file")
	}
	offset, err := r.uint(uint64(r.file.Size))
	if err != nil {
		return Frame{}, err
	}
	n, err := r.uint(MaxData)
	if err != nil {
		return Frame{}, err
	}
	if int64(offset) < r.at || n == 0 || int64(n) > r.file.Size-int64(offset) {
		return Frame{}, malformed("content is out of place")
	}
	r.at = int64(offset + n)
	if r.buffer == nil {
		r.buffer = make([]byte, MaxData)
	}
	if _, err := io.ReadFull(r.r, r.buffer[:n]); err != nil {
		return Frame{}, err
	}
	return Frame{Data: r.buffer[:n], Offset: int64(offset)}, nil
}

// text reads a text of at most limit bytes.
func (r *Reader) text(limit uint64) (string, error) {
	n, err := r.uint(limit)
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r.r, b)
	return string(b), err
}

// uint reads a number of at most limit.
func (r *Reader) uint(limit uint64) (uint64, error) {
	n, err := binary.ReadUvarint(r.r)
	if err == nil && n > limit {
		return 0, malformed("the number %d is above %d", n, limit)
	}
	return n, numberError(err)
}

// numberError replaces the library's error about a number of more than 64 bits by an ErrMalformed.
func numberError(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if strings.HasPrefix(err.Error(), "binary: ") {
		return malformed("a number has more than 64 bits")
	}
	return err
}
