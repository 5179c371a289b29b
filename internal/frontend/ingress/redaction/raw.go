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

// pieceSize is what is asked of a source at once.
const pieceSize = 32 << 10

// stream masks pieces under the newest values.
type stream struct {
	redactor func() *redact.Redactor
	last     *redact.Redactor
	s        *redact.Stream
}

func (s *stream) fresh() *redact.Stream {
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

func (s *stream) append(dst, piece []byte) []byte { return s.fresh().Append(dst, piece) }

func (s *stream) end(dst []byte) []byte { return s.fresh().End(dst) }

// maxRoom is the room that is kept for what is masked next.
const maxRoom = 4 * batch

// pending is what is masked and not yet read.
type pending struct {
	out  []byte
	next int
	err  error // given when out is empty
}

// read gives what is there, or lets fill make some.
func (p *pending) read(b []byte, fill func()) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for p.next == len(p.out) {
		if p.err != nil {
			return 0, p.err
		}
		if p.out, p.next = p.out[:0], 0; cap(p.out) > maxRoom {
			p.out = nil // a stream may last for hours
		}
		fill()
	}
	n := copy(b, p.out[p.next:])
	p.next += n
	return n, nil
}

// rawReader masks bytes as they come.
type rawReader struct {
	source   io.Reader
	redactor func() *redact.Redactor
	stream   stream
	in       []byte
	pending
}

// Read waits while all that came is held.
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

// switched masks what a sandbox says on a connection that became another
// protocol. Lengths stay, so that its frames do.
func switched(res *http.Response, m *sandbox.Mask) error {
	if m.Bytes() == nil {
		return nil
	}
	conn, ok := res.Body.(io.ReadWriteCloser)
	if !ok {
		return unreadable("is no connection")
	}
	res.Status = "" // the program's own words, which no client needs
	res.Body = &upgraded{rawReader{source: conn, redactor: m.Bytes}, conn}
	return nil
}

type upgraded struct {
	rawReader
	conn io.ReadWriteCloser
}

// Write says something to the sandbox.
func (u *upgraded) Write(b []byte) (int, error) { return u.conn.Write(b) }

// Close ends the connection.
func (u *upgraded) Close() error { return u.conn.Close() }

// CloseWrite says that the caller has said all.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return u.conn.Close()
}

// plain undoes the encoding of a body. None was asked for, so an answer in one
// that we cannot read is refused.
func plain(res *http.Response) (io.ReadCloser, error) {
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
		return nil, unreadable("is in an encoding that was not asked for")
	case res.StatusCode == http.StatusPartialContent:
		return nil, unreadable("is a part of something compressed")
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	return &gunzip{source: res.Body}, nil
}

// gunzip begins when it is read: a stream may have nothing to say yet.
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
