package observe

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress/redact"
)

// Actions of entries about files.
const (
	actionUpload   = "file.upload"
	actionDownload = "file.download"
)

// urlActor is the actor of a request with a signed file URL.
const urlActor = "url"

// file observes an upload or download of a file.
func (t *Tap) file(r *http.Request, c Call) (*Visit, *refusal) {
	m := &move{tap: t, call: c, query: r.URL.Query().Get("path"), known: c.authorized}
	if !m.known && r.Header.Get(tokenHeader) == "" {
		m.call.Actor = urlActor
	}
	m.user = short(r.URL.Query().Get("username"), c.Mask.Record())
	switch r.Method {
	case http.MethodGet:
		m.span = short(r.Header.Get("Range"), c.Mask.Record())
		return &Visit{answer: m.download, done: func() {}}, nil
	case http.MethodPost:
		m.upload(r)
		return &Visit{answer: m.uploaded, done: m.stop}, nil
	}
	return nil, nil
}

// move is one request that transfers files.
type move struct {
	tap   *Tap
	call  Call
	query string // the path, or "" if each part of a body names its own
	user  string
	span  string
	known bool // the caller has the token
	parts *parts
	place string // place of a copy, for the names of its files
	copy  bool
}

// draft returns the entry of one file.
func (m *move) draft(data Moved) audit.Draft {
	mask := m.call.Mask.Record()
	data.Path, data.Encoding, data.User = short(data.Path, mask), short(data.Encoding, mask), m.user
	return audit.Draft{Kind: audit.Action, Sandbox: m.call.Sandbox, Actor: m.call.Actor, Data: data}
}

// download hashes a file while it is sent. The entry is written before the client gets the end.
func (m *move) download(res *http.Response) error {
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusPartialContent {
		return nil
	}
	res.Body = &downloadBody{ReadCloser: res.Body, move: m, count: newCounter(), coding: res.Header.Get("Content-Encoding")}
	return nil
}

// downloadBody hashes a file while the client reads it.
type downloadBody struct {
	io.ReadCloser
	move   *move
	count  *counter
	coding string
	once   sync.Once
	err    error
}

func (l *downloadBody) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	l.count.add(b[:n])
	if err != nil {
		if noteErr := l.note(!errors.Is(err, io.EOF)); noteErr != nil {
			return 0, noteErr // without an entry, the client must not get a complete file
		}
	}
	return n, err
}

func (l *downloadBody) Close() error {
	return errors.Join(l.note(true), l.ReadCloser.Close())
}

func (l *downloadBody) note(lost bool) error {
	l.once.Do(func() {
		sum := l.count.sum()
		l.err = l.move.tap.Audit.Note(l.move.draft(Moved{
			Do: actionDownload, Outcome: "ok", Path: l.move.query, Bytes: sum.Bytes, Sum: sum.Sum,
			Encoding: l.coding, Range: l.move.span, Lost: lost,
		}))
	})
	return l.err
}

// upload hashes the files of a body while it is received.
func (m *move) upload(r *http.Request) {
	in, out := io.Pipe()
	m.parts = &parts{pipe: out, done: make(chan struct{}), mask: m.call.Mask.Record()}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	packed := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding")))
	go func() {
		defer close(m.parts.done)
		m.parts.read(in, kind, params["boundary"], packed == "gzip" || packed == "x-gzip", m.query)
		// The guest does not read the rest of a body that it refused. This must not block the body.
		_, _ = io.Copy(io.Discard, in)
	}()
	r.Body = &uploadBody{ReadCloser: r.Body, pipe: out}
}

// uploadBody copies a body to a pipe while the guest reads it.
type uploadBody struct {
	io.ReadCloser
	pipe *io.PipeWriter
}

func (e *uploadBody) Read(b []byte) (int, error) {
	n, err := e.ReadCloser.Read(b)
	_, _ = e.pipe.Write(b[:n]) // fails only after the reader has stopped
	if err != nil {
		_ = e.pipe.CloseWithError(err) // never fails
	}
	return n, err
}

func (e *uploadBody) Close() error {
	_ = e.pipe.CloseWithError(io.ErrUnexpectedEOF) // never fails, and not over an end
	return e.ReadCloser.Close()
}

// parts are the files of one body.
type parts struct {
	pipe  *io.PipeWriter
	done  chan struct{} // closed when files is complete
	files []Moved
	mask  *redact.Redactor
}

// maxFiles bounds the files of one body that have entries of their own.
const maxFiles = 10_000

// read splits a body as the guest does.
func (p *parts) read(body io.Reader, kind, boundary string, packed bool, path string) {
	if packed {
		plain, err := gzip.NewReader(body)
		if err != nil {
			return
		}
		body = plain
	}
	if kind != "multipart/form-data" {
		_ = p.file(path, body) // the entry says that it was cut
		return
	}
	for reader := multipart.NewReader(body, boundary); len(p.files) < maxFiles; {
		part, err := reader.NextRawPart()
		if err != nil {
			return
		}
		if part.FormName() != "file" {
			continue
		}
		name := path
		if name == "" {
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if err != nil || params["filename"] == "" {
				return
			}
			name = params["filename"]
		}
		if p.file(name, part) != nil {
			return
		}
	}
}

func (p *parts) file(path string, content io.Reader) error {
	count := newCounter()
	_, err := io.Copy(writer(count.add), content)
	sum := count.sum()
	// Names in a body could be 10 MiB each. A name is redacted before it is shortened, or half of a
	// secret would be visible.
	path = strings.Clone(short(path, p.mask))
	p.files = append(p.files, Moved{Do: actionUpload, Path: path, Bytes: sum.Bytes, Sum: sum.Sum, Lost: err != nil})
	return err
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

// stop ends the reading of an incomplete body.
func (m *move) stop() {
	_ = m.parts.pipe.CloseWithError(io.ErrUnexpectedEOF) // never fails
	<-m.parts.done
}

func outcome(status int) string {
	if status == http.StatusOK {
		return "ok"
	}
	return fmt.Sprintf("http_%d", status)
}

// bodyEndTimeout bounds the wait for the end of the body after an answer. The body usually has
// ended already, unless the guest answered before it had read all.
const bodyEndTimeout = time.Second

// uploaded writes the entries after the guest has answered. If that fails, the caller gets an
// error.
func (m *move) uploaded(res *http.Response) error {
	if res.StatusCode >= http.StatusMultipleChoices && !m.known {
		return nil // a request without the token may be refused, and has no entry here
	}
	limit := time.NewTimer(bodyEndTimeout)
	defer limit.Stop()
	select {
	case <-m.parts.done:
	case <-limit.C:
		m.stop()
	}
	drafts := make([]audit.Draft, 0, len(m.parts.files))
	for _, f := range m.parts.files {
		f.Outcome = outcome(res.StatusCode)
		if m.copy {
			f.Path = path.Join(cmp.Or(m.place, m.query), f.Path)
		}
		drafts = append(drafts, m.draft(f))
	}
	const batch = 100
	for len(drafts) > 0 {
		n := min(batch, len(drafts))
		if err := m.tap.Audit.Note(drafts[:n]...); err != nil {
			return unrecorded(err).err
		}
		drafts = drafts[n:]
	}
	return nil
}
