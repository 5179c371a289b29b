package files

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/give"
	"github.com/crannog/crannog/internal/guest/identity"
)

// create opens a file for writing as user, and creates missing parent directories. Everything runs
// with the user's rights, so a symbolic link cannot lead to a file that the user may not write.
// Where the user may not create a new file, root creates it and changes its owner to the user.
func (s *Service) create(user identity.User, path string) (*os.File, error) {
	var f *os.File
	err := s.cfg().Actor.Do(user, func() (err error) {
		f, err = openWrite(path)
		if errors.Is(err, os.ErrNotExist) {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			f, err = openWrite(path)
		}
		return err
	})
	if give.Possible(s.cfg().Actor, s.cfg().Accounts, user, err) {
		if created, err := give.File(user, path); err == nil {
			return created, nil
		}
	}
	return f, err
}

// openWrite truncates or creates a regular file. It does not block on a named pipe and never writes
// to a device.
func openWrite(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOCTTY, 0o666)
	if errors.Is(err, syscall.ENXIO) {
		return nil, httpErrorf(http.StatusBadRequest, "path '%s' is not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = httpErrorf(http.StatusBadRequest, "path '%s' is not a regular file", path)
	}
	if err == nil && info.Size() > 0 {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// maxCompose limits the request body, which lists the parts.
const maxCompose = 1 << 20

// composeRequest is a request to join files.
type composeRequest struct {
	Sources     []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`
}

// Compose joins files into one and removes them. The caller has checked the access token.
func (s *Service) Compose(w http.ResponseWriter, r *http.Request) {
	var req composeRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCompose)).Decode(&req); err != nil {
		s.fail(w, "", httpErrorf(http.StatusBadRequest, "malformed JSON body"))
		return
	}
	entry, path, err := s.compose(req)
	if err != nil {
		s.fail(w, path, err)
		return
	}
	answer(w, http.StatusOK, entry)
}

// compose joins the files of a request. If it fails, it returns the path that caused the error.
func (s *Service) compose(req composeRequest) (Entry, string, error) {
	if len(req.Sources) == 0 || req.Destination == "" {
		return Entry{}, "", httpErrorf(http.StatusBadRequest, "source_paths and destination are required")
	}
	user, err := s.account(req.Username)
	if err != nil {
		return Entry{}, "", err
	}
	paths := make([]string, 0, len(req.Sources)+1)
	for _, name := range append(slices.Clone(req.Sources), req.Destination) {
		path, err := user.Resolve(name, s.cfg().DefaultDir)
		if err != nil {
			return Entry{}, name, httpErrorf(http.StatusBadRequest, "%v", err)
		}
		// A part that is listed twice would be read after its removal. The destination would be
		// truncated before it is read.
		if slices.Contains(paths, path) {
			return Entry{}, name, httpErrorf(http.StatusBadRequest, "path '%s' is given more than once", path)
		}
		paths = append(paths, path)
	}
	sources, destination := paths[:len(paths)-1], paths[len(paths)-1]
	if path, err := s.join(user, sources, destination); err != nil {
		return Entry{}, path, err
	}
	return Entry{Path: destination, Name: filepath.Base(destination), Type: "file"}, "", nil
}

// join appends all sources to an empty destination, then removes them. On an error it removes none.
func (s *Service) join(user identity.User, sources []string, destination string) (path string, err error) {
	out, err := s.create(user, destination)
	if err != nil {
		return destination, err
	}
	defer func() {
		if closeErr := out.Close(); err == nil && closeErr != nil {
			path, err = destination, closeErr
		}
	}()
	for _, source := range sources {
		if err := s.appendTo(user, out, source); err != nil {
			return source, err
		}
	}
	for _, source := range sources {
		if err := s.cfg().Actor.Do(user, func() error { return os.Remove(source) }); err != nil {
			return source, err
		}
	}
	return "", nil
}

// appendTo appends a source to the destination.
func (s *Service) appendTo(user identity.User, out *os.File, source string) error {
	f, err := s.openRead(user, source)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{f}, make([]byte, readAhead))
	return err
}
