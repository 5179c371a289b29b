package files

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/metadata"
	"github.com/crannog/crannog/internal/guest/signature"
)

// readAhead is the size of reads from a body. Each read of the connection is a system call, which
// is expensive in a sandbox.
const readAhead = 256 << 10

// Upload answers POST by writing the files of the request.
func (s *Service) Upload(w http.ResponseWriter, r *http.Request) {
	t, query, err := s.target(r, signature.Write)
	if err != nil {
		s.fail(w, t.path, err)
		return
	}
	u := upload{service: s, user: t.user}
	if err := u.run(r, t, query); err != nil {
		s.fail(w, u.path, err)
		return
	}
	answer(w, http.StatusOK, u.written)
}

// upload is the state of one request.
type upload struct {
	service  *Service
	user     identity.User
	metadata map[string]string
	path     string // the file being written, for errors
	written  []Entry
}

// run writes the files in the body of a request.
func (u *upload) run(r *http.Request, t target, query url.Values) error {
	set, err := metadata.FromHeader(r.Header)
	if err != nil {
		return httpErrorf(http.StatusBadRequest, "%v", err)
	}
	u.metadata = set
	body, err := decode(r)
	if err != nil {
		return err
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return httpErrorf(http.StatusBadRequest, "missing or malformed content type")
	}
	queryPath := ""
	if query.Get("path") != "" {
		queryPath = t.path
	}
	switch kind {
	case "multipart/form-data":
		if params["boundary"] == "" {
			return httpErrorf(http.StatusBadRequest, "multipart body without a boundary")
		}
		buffered := bufio.NewReaderSize(body, readAhead)
		return u.parts(multipart.NewReader(buffered, params["boundary"]), queryPath)
	case "application/octet-stream":
		if queryPath == "" {
			return httpErrorf(http.StatusBadRequest, "path is required for an octet-stream body")
		}
		return u.write(queryPath, body)
	}
	return httpErrorf(http.StatusBadRequest, "unsupported content type %q", kind)
}

// parts writes every part of the form that is named "file". queryPath is the path if the form may
// have only one file, or "" if each part has its own path.
func (u *upload) parts(body *multipart.Reader, queryPath string) error {
	for {
		part, err := body.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return bodyError(err)
		}
		if part.FormName() != "file" {
			continue
		}
		path, err := u.partPath(part, queryPath)
		if err != nil {
			return err
		}
		if err := u.write(path, part); err != nil {
			return err
		}
	}
	if len(u.written) == 0 {
		return httpErrorf(http.StatusBadRequest, "the body has no part named file")
	}
	return nil
}

// partPath returns the path of a part. The part's file name is a path with directories, which the
// library's FileName would remove.
func (u *upload) partPath(part *multipart.Part, queryPath string) (string, error) {
	path := queryPath
	if path == "" {
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil || params["filename"] == "" {
			return "", httpErrorf(http.StatusBadRequest, "a part has no file name, and the request has no path")
		}
		path, err = u.user.Resolve(params["filename"], u.service.cfg().DefaultDir)
		if err != nil {
			return "", httpErrorf(http.StatusBadRequest, "%v", err)
		}
	}
	samePath := func(e Entry) bool { return e.Path == path }
	if slices.ContainsFunc(u.written, samePath) {
		return "", httpErrorf(http.StatusBadRequest, "path '%s' is given more than once", path)
	}
	return path, nil
}

// write writes one file and adds it to the answer.
func (u *upload) write(path string, content io.Reader) error {
	u.path = path
	f, err := u.service.create(u.user, path)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, bodyReader{content}, make([]byte, readAhead))
	if err == nil {
		err = u.service.cfg().Actor.Do(u.user, func() error { return metadata.Replace(int(f.Fd()), u.metadata) })
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	u.written = append(u.written, Entry{Path: path, Name: filepath.Base(path), Type: "file", Metadata: u.metadata})
	return nil
}

// bodyReader marks read errors as errors of the request, so that they differ from errors of the
// disk.
type bodyReader struct{ from io.Reader }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, bodyError(err)
	}
	return n, err
}

// bodyError returns the error for a body that cannot be read.
func bodyError(err error) error {
	if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) {
		return httpErrorf(http.StatusBadRequest, "the body is not gzip")
	}
	return fmt.Errorf("%w (%v)", &httpError{http.StatusBadRequest, "the body is cut short or malformed"}, err)
}
