package observe

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/crannog/crannog/internal/filetree/copytree"
)

// copyPath is the path for copying files and directories in and out.
const copyPath = "/copy"

// copies observes files that are copied in or out: each has an entry, like a single upload or
// download.
func (t *Tap) copies(r *http.Request, c Call) (*Visit, *refusal) {
	query := r.URL.Query()
	m := &move{tap: t, call: c, query: query.Get("path"), known: c.authorized}
	m.user = short(query.Get("username"), c.Mask.Record())
	if r.Method == http.MethodGet {
		return &Visit{answer: m.copiedOut, done: func() {}}, nil
	}
	m.copy = true
	in, out := io.Pipe()
	m.parts = &parts{pipe: out, done: make(chan struct{}), mask: c.Mask.Record()}
	go func() {
		defer close(m.parts.done)
		// Files that the guest refuses have no entry. The entry of an interrupted file is marked as
		// such.
		_ = eachCopied(in, actionUpload, "", func(f Moved) error {
			if len(m.parts.files) < maxFiles {
				f.Path = strings.Clone(short(f.Path, m.parts.mask)) // below the top directory of the copy
				m.parts.files = append(m.parts.files, f)
			}
			return nil
		})
		_, _ = io.Copy(io.Discard, in) // it must not stop the body
	}()
	r.Body = &uploadBody{ReadCloser: r.Body, pipe: out}
	return &Visit{answer: m.uploadedTo, done: m.stop}, nil
}

// maxPlace bounds the response with the destination of a copy.
const maxPlace = 64 << 10

// uploadedTo is like uploaded, for a copy. It reads the destination from the guest's response: in
// an existing directory, the copy has the source's own name.
func (m *move) uploadedTo(res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		return m.uploaded(res)
	}
	var body bytes.Buffer
	_, err := io.Copy(&body, io.LimitReader(res.Body, maxPlace))
	res.Body = partlyRead{io.MultiReader(bytes.NewReader(body.Bytes()), res.Body), res.Body}
	var destination struct {
		Path []byte `json:"path"`
	}
	if err == nil && json.Unmarshal(body.Bytes(), &destination) == nil {
		m.place = string(destination.Path)
	}
	return m.uploaded(res)
}

// copiedOut observes an answer.
func (m *move) copiedOut(res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		return nil
	}
	in, out := io.Pipe()
	l := &copyBody{ReadCloser: res.Body, pipe: out, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		err := eachCopied(in, actionDownload, m.query, func(f Moved) error {
			f.Outcome = "ok"
			return m.tap.Audit.Note(m.draft(f))
		})
		var sourceErr *copytree.SourceError
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, copytree.ErrMalformed) && !errors.As(err, &sourceErr) {
			l.err = err
		}
		_ = in.CloseWithError(err) // never fails
	}()
	res.Body = l
	return nil
}

// copyBody is an outgoing stream. Its end is passed on when all entries are written.
type copyBody struct {
	io.ReadCloser
	pipe *io.PipeWriter
	done chan struct{}
	err  error // of writing entries, once done is closed
}

func (l *copyBody) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	_, _ = l.pipe.Write(b[:n]) // fails only after the reader has stopped: see err
	if err == nil {
		select {
		case <-l.done:
			if l.err != nil {
				return 0, l.err // a file without an entry is not passed on
			}
		default:
		}
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		_ = l.pipe.CloseWithError(err) // never fails
	}
	_ = l.pipe.CloseWithError(io.ErrUnexpectedEOF) // never fails, and not over an error
	if <-l.done; l.err != nil {
		return 0, l.err
	}
	return n, err
}

func (l *copyBody) Close() error {
	_ = l.pipe.CloseWithError(io.ErrUnexpectedEOF) // never fails
	<-l.done
	return errors.Join(l.err, l.ReadCloser.Close())
}

// eachCopied calls do for each file of a stream.
func eachCopied(stream io.Reader, action, top string, do func(Moved) error) error {
	in := copytree.NewReader(stream)
	var dirs []string
	var file *fileHash
	for {
		f, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			if file != nil {
				err = errors.Join(do(file.end(true)), err)
			}
			return err
		case f.Entry != nil:
			name := f.Entry.Name
			if len(dirs) == 0 {
				name = top // the source may have another name than the requested one
			}
			switch f.Entry.Kind {
			case copytree.Dir:
				dirs = append(dirs, name)
			case copytree.File:
				file = &fileHash{count: newCounter(), size: f.Entry.Size}
				file.moved = Moved{Do: action, Path: path.Join(append(dirs[:len(dirs):len(dirs)], name)...)}
			case copytree.Link, copytree.LeftOut:
			}
		case f.End && file != nil:
			if err := do(file.end(false)); err != nil {
				return err
			}
			file = nil
		case f.End:
			dirs = dirs[:len(dirs)-1]
		default:
			file.hole(f.Offset)
			file.count.add(f.Data)
			file.at = f.Offset + int64(len(f.Data))
		}
	}
}

// fileHash is a file whose hash is being computed.
type fileHash struct {
	moved Moved
	count *counter
	size  int64
	at    int64
	zeros int64 // bytes of holes that were hashed so far
}

// maxZeros bounds the holes of a file that are hashed as zeros. A sandbox can send a hole of any
// size in a few bytes.
const maxZeros = 256 << 20

// hole hashes the gap before the next piece: as zeros up to the limit for the file, then as the
// hole's offset and length, 8 bytes each.
func (s *fileHash) hole(until int64) {
	n := until - s.at
	if n <= 0 {
		return
	}
	if s.zeros += n; s.zeros <= maxZeros {
		for piece := make([]byte, min(n, 32<<10)); n > 0; n -= int64(len(piece)) {
			piece = piece[:min(n, int64(len(piece)))]
			s.count.add(piece)
		}
		return
	}
	s.zeros, s.moved.Sparse = maxZeros+1, true
	s.count.add(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(s.at)), uint64(n)))
}

func (s *fileHash) end(lost bool) Moved {
	if s.moved.Bytes, s.moved.Lost = s.at, lost; !lost {
		s.hole(s.size)
		s.moved.Bytes = s.size
	}
	s.moved.Sum = s.count.sum().Sum
	return s.moved
}
