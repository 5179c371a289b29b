package redaction

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/sandbox"
)

// pieceSize is the size of one read.
const pieceSize = 32 << 10

// stream redacts pieces with the sandbox's present values.
type stream struct {
	redactor func() *redact.Redactor
	last     *redact.Redactor
	s        *redact.Stream
}

func (s *stream) current() *redact.Stream {
	r := s.redactor()
	switch {
	case s.s == nil:
		s.s = r.Stream()
	case r != s.last:
		s.s.Renew(r)
	}
	s.last = r
	return s.s
}

func (s *stream) append(dst, piece []byte) []byte { return s.current().Append(dst, piece) }

func (s *stream) end(dst []byte) []byte { return s.current().End(dst) }

// maxKeptBuffer bounds the buffer that is kept for the next piece.
const maxKeptBuffer = 4 * batch

// pending is redacted output that has not been read yet.
type pending struct {
	out  []byte
	next int
	err  error // returned when out is empty
}

// read returns pending output, or calls fill to get more.
func (p *pending) read(b []byte, fill func()) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for p.next == len(p.out) {
		if p.err != nil {
			return 0, p.err
		}
		if p.out, p.next = p.out[:0], 0; cap(p.out) > maxKeptBuffer {
			p.out = nil // a stream may last for hours
		}
		fill()
	}
	n := copy(b, p.out[p.next:])
	p.next += n
	return n, nil
}

// rawReader redacts bytes as they arrive.
type rawReader struct {
	source   io.Reader
	redactor func() *redact.Redactor
	stream   stream
	in       []byte
	pending
}

// Read blocks while all received bytes are held back.
func (r *rawReader) Read(b []byte) (int, error) { return r.read(b, r.fill) }

func (r *rawReader) fill() {
	if r.in == nil {
		r.in, r.stream.redactor = make([]byte, pieceSize), r.redactor
	}
	var n int
	n, r.err = r.source.Read(r.in)
	r.out = r.stream.append(r.out, r.in[:n])
	if r.err != nil {
		r.out = r.stream.end(r.out)
	}
}

// redactUpgraded redacts a sandbox's output on an upgraded connection. Lengths are preserved, so
// that frames stay valid.
func redactUpgraded(res *http.Response, m *sandbox.Redactor) error {
	if m.Bytes() == nil {
		return nil
	}
	conn, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		return unreadable("is no connection")
	}
	res.Status = "" // the status text could contain a value, and clients do not need it
	res.Body = &upgraded{rawReader{source: conn, redactor: m.Bytes}, conn}
	return nil
}

type upgraded struct {
	rawReader
	conn io.ReadWriteCloser
}

// Write writes to the sandbox.
func (u *upgraded) Write(b []byte) (int, error) { return u.conn.Write(b) }

// Close ends the connection.
func (u *upgraded) Close() error { return u.conn.Close() }

// CloseWrite passes on the end of the caller's input.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return u.conn.Close()
}

// decodeBody decodes a body. The request asked for no encoding, so an answer in an unknown encoding
// is refused.
func decodeBody(res *http.Response) (io.ReadCloser, error) {
	var codings []string
	for _, line := range res.Header["Content-Encoding"] {
		for c := range strings.SplitSeq(line, ",") {
			if c = strings.ToLower(strings.TrimSpace(c)); c != "" && c != "identity" {
				codings = append(codings, c)
			}
		}
	}
	switch {
	case len(codings) == 0:
		return res.Body, nil
	case len(codings) > 1 || codings[0] != "gzip" && codings[0] != "x-gzip":
		return nil, unreadable("is in an encoding that the request did not ask for")
	case res.StatusCode == http.StatusPartialContent:
		return nil, unreadable("is a part of compressed data")
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	return &gunzip{source: res.Body}, nil
}

// gunzip decompresses a body. It reads the header only with the first Read, because a stream may
// have no data yet.
type gunzip struct {
	source io.ReadCloser
	z      *gzip.Reader
	err    error
}

func (g *gunzip) Read(b []byte) (int, error) {
	if g.z == nil && g.err == nil {
		g.z, g.err = gzip.NewReader(g.source)
		if errors.Is(g.err, io.EOF) {
			g.err = io.ErrUnexpectedEOF // not even a header
		}
	}
	if g.err != nil {
		return 0, g.err
	}
	return g.z.Read(b)
}

func (g *gunzip) Close() error { return g.source.Close() }
