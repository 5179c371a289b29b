package files

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/signature"
)

// Download answers GET and HEAD with a file's content.
func (s *Service) Download(w http.ResponseWriter, r *http.Request) {
	t, _, err := s.target(r, signature.Read)
	if err == nil {
		err = s.download(w, r, t)
	}
	if err != nil {
		s.fail(w, t.path, err)
	}
}

// download sends the file of a request.
func (s *Service) download(w http.ResponseWriter, r *http.Request, t target) error {
	coding, err := negotiate(r.Header.Get("Accept-Encoding"))
	if err != nil {
		return err
	}
	f, err := s.openRead(t.user, t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header(w.Header(), t.path)
	partial := r.Header.Get("Range") != ""
	switch {
	case info.Size() == 0:
		// Files of /proc have content although their size is 0.
		return s.stream(w, r, f)
	case coding == "gzip" && !partial:
		s.compress(w, r, f)
		return nil
	}
	http.ServeContent(w, r, filepath.Base(t.path), info.ModTime(), f)
	return nil
}

// openRead opens a regular file as user.
func (s *Service) openRead(user identity.User, path string) (*os.File, error) {
	var f *os.File
	err := s.cfg().Actor.Do(user, func() (err error) {
		// Without O_NONBLOCK, opening a named pipe waits for a writer.
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = syscall.EISDIR
	case !info.Mode().IsRegular():
		err = httpErrorf(http.StatusBadRequest, "path '%s' is not a regular file", path)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// header sets the headers of a download. A browser must not run content from a sandbox with the
// rights of this server's other pages.
func header(h http.Header, path string) {
	h.Set("Content-Disposition", disposition(filepath.Base(path)))
	h.Set("Vary", "Accept-Encoding")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
}

// disposition returns the Content-Disposition of a file name.
func disposition(name string) string {
	if d := mime.FormatMediaType("inline", map[string]string{"filename": name}); d != "" {
		return d
	}
	return "inline"
}

// firstRead is the number of bytes read before the answer begins. They show whether a file of
// unknown size is empty, and a read error can still be reported with a status.
const firstRead = 32 << 10

// stream sends a file of unknown size.
func (s *Service) stream(w http.ResponseWriter, r *http.Request, f *os.File) error {
	first := make([]byte, firstRead)
	n, err := io.ReadFull(f, first)
	short := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !short {
		return err
	}
	w.Header().Set("Content-Type", http.DetectContentType(first[:n]))
	if short {
		w.Header().Set("Content-Length", strconv.Itoa(n))
	}
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(first[:n]); err != nil || short {
		return nil // the client has disconnected, or the file is complete
	}
	if _, err := io.Copy(w, f); err != nil {
		// The status is already sent, so only cutting the connection can report the error.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// compressors has unused gzip writers, because creating one needs much memory.
var compressors = sync.Pool{New: func() any {
	c, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // a valid level
	return c
}}

// compress sends a file compressed with gzip.
func (s *Service) compress(w http.ResponseWriter, r *http.Request, f *os.File) {
	h := w.Header()
	h.Set("Content-Encoding", "gzip")
	h.Set("Content-Type", "application/octet-stream")
	if r.Method == http.MethodHead {
		return
	}
	c := compressors.Get().(*gzip.Writer)
	defer compressors.Put(c)
	c.Reset(w)
	_, err := io.Copy(c, f)
	if err := errors.Join(err, c.Close()); err != nil {
		panic(http.ErrAbortHandler)
	}
}
