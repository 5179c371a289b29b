package redact

import "io"

// Writer returns a writer that redacts into w. Each Write outputs at once everything that is not
// held. Close outputs the rest; it does not close w.
func (r *Redactor) Writer(w io.Writer) io.WriteCloser {
	return &writer{s: r.Stream(), w: w}
}

type writer struct {
	s   *Stream
	w   io.Writer
	out []byte
	err error
}

// Write accepts all of p or fails permanently, because after a loss the position in the stream is
// unknown.
func (w *writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.out = w.s.Append(w.out[:0], p)
	if err := w.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *writer) Close() error {
	if w.err != nil {
		return w.err
	}
	w.out = w.s.End(w.out[:0])
	err := w.flush()
	w.err = io.ErrClosedPipe
	return err
}

func (w *writer) flush() error {
	if len(w.out) > 0 {
		_, w.err = w.w.Write(w.out)
	}
	return w.err
}

// readSize is the size of one read from the source.
const readSize = 32 << 10

// Reader returns a reader that redacts the data of source. A Read blocks while all data is held.
func (r *Redactor) Reader(source io.Reader) io.Reader {
	return &reader{s: r.Stream(), source: source}
}

type reader struct {
	s      *Stream
	source io.Reader
	in     []byte
	out    []byte // redacted; the part from next on was not returned yet
	next   int
	err    error // of the source, returned when out is empty
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.next == len(r.out) {
		if r.err != nil {
			return 0, r.err
		}
		if r.in == nil {
			r.in = make([]byte, readSize)
		}
		var n int
		n, r.err = r.source.Read(r.in)
		r.out, r.next = r.s.Append(r.out[:0], r.in[:n]), 0
		if r.err != nil {
			r.out = r.s.End(r.out)
		}
	}
	n := copy(p, r.out[r.next:])
	r.next += n
	return n, nil
}
