package redaction

import (
	"errors"
	"io"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/filetree/copytree"
)

// copyReader redacts a stream of files: names, targets of links, and content across pieces.
// Redaction preserves lengths, so that each byte stays at its offset in the file.
type copyReader struct {
	source   *copytree.Reader
	redactor func() *redact.Redactor
	content  *stream // of the current file
	at       int64   // offset in the file of the next redacted byte
	held     int64   // number of bytes that were read and not written yet
	buffer   []byte
	out      sink
	writer   *copytree.Writer
	pending
}

// sink is a writer that appends to a slice.
type sink struct{ to *[]byte }

func (s *sink) Write(b []byte) (int, error) {
	*s.to = append(*s.to, b...)
	return len(b), nil
}

func newCopies(source io.Reader, redactor func() *redact.Redactor) io.Reader {
	c := &copyReader{source: copytree.NewReader(source), redactor: redactor}
	c.out.to = &c.pending.out
	c.writer = copytree.NewWriter(&c.out)
	return c
}

// Read implements io.Reader.
func (c *copyReader) Read(b []byte) (int, error) { return c.read(b, c.fill) }

func (c *copyReader) fill() {
	f, err := c.source.Next()
	switch {
	case errors.Is(err, io.EOF):
		if c.err = c.writer.Close(); c.err == nil {
			c.err = io.EOF
		}
		return
	case err != nil:
		if sourceErr, ok := errors.AsType[*copytree.SourceError](err); ok {
			if c.err = c.writer.Fail(c.redactor().String(sourceErr.Text)); c.err == nil {
				c.err = io.EOF
			}
			return
		}
		c.err = err
		return
	case f.Data != nil:
		c.err = c.data(f)
		return
	case f.Entry != nil:
		r := c.redactor()
		f.Entry.Name, f.Entry.Target = r.String(f.Entry.Name), r.String(f.Entry.Target)
	}
	if c.err = c.flush(); c.err == nil {
		c.err = c.writer.Frame(f)
	}
	if c.err == nil {
		c.err = c.writer.Flush()
	}
}

// data redacts a piece. If it directly follows the last piece, a value may begin in that piece and
// end in this one.
func (c *copyReader) data(f copytree.Frame) error {
	if c.content != nil && f.Offset != c.at+c.held {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if c.content == nil {
		c.content, c.at = &stream{redactor: c.redactor}, f.Offset
	}
	c.held += int64(len(f.Data))
	c.buffer = c.content.append(c.buffer[:0], f.Data)
	return c.put(c.buffer)
}

// flush writes the content that was held back.
func (c *copyReader) flush() error {
	if c.content == nil {
		return nil
	}
	rest := c.content.end(nil)
	c.content = nil
	err := c.put(rest)
	c.held = 0
	return err
}

func (c *copyReader) put(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), copytree.MaxData)
		if err := c.writer.Data(c.at, b[:n]); err != nil {
			return err
		}
		b, c.at, c.held = b[n:], c.at+int64(n), c.held-int64(n)
	}
	return nil
}
