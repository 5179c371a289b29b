package files

import (
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"syscall"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/copytree"
	"github.com/crannog/crannog/internal/guest/give"
	"github.com/crannog/crannog/internal/guest/identity"
)

// Copy answers GET with a stream of a file or directory, and writes such a stream on POST. The
// caller has checked the access token.
func (s *Service) Copy(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		s.fail(w, "", httpErrorf(http.StatusBadRequest, "malformed query"))
		return
	}
	path := query.Get("path")
	if path == "" {
		s.fail(w, "", httpErrorf(http.StatusBadRequest, "path is required"))
		return
	}
	caller, err := s.account(query.Get("username"))
	if err == nil {
		path, err = resolve(caller, path)
	}
	if err == nil && r.Method == http.MethodGet {
		err = s.copyOut(w, r, s.reader(caller, query), path, query.Get("follow") == "1")
	} else if err == nil {
		err = s.copyIn(w, r, caller, path, query)
	}
	if err != nil {
		s.failCopy(w, path, err)
	}
}

// resolve returns the absolute path of a copy. It preserves a trailing slash, which means that the
// path is a directory.
func resolve(caller identity.User, path string) (string, error) {
	clean, err := caller.Resolve(path, "")
	if err != nil {
		return "", httpErrorf(http.StatusBadRequest, "%v", err)
	}
	for _, end := range []string{"/.", "/"} {
		if len(path) > len(end) && path[len(path)-len(end):] == end && clean != "/" {
			return clean + end, nil
		}
	}
	return clean, nil
}

// reader returns the user whose rights apply to reading. If the request names no user, the caller
// is the sandbox's owner and reads as root, unless the policy forbids root.
func (s *Service) reader(caller identity.User, query url.Values) identity.User {
	if query.Get("username") != "" {
		return caller
	}
	if root, err := s.account("root"); err == nil {
		return root
	}
	return caller
}

// copyOut sends a file or directory.
func (s *Service) copyOut(w http.ResponseWriter, r *http.Request, caller identity.User, path string, follow bool) error {
	var source *copytree.Source
	err := s.cfg().Actor.Do(caller, func() (err error) {
		source, err = copytree.Open(path, follow)
		return err
	})
	if err != nil {
		return err
	}
	defer source.Close()
	w.Header().Set("Content-Type", copytree.ContentType)
	w.WriteHeader(http.StatusOK)
	// Errors about files are part of the stream. An error of the connection can only be logged.
	if err := s.cfg().Actor.Do(caller, func() error { return source.Send(r.Context(), w) }); err != nil {
		s.cfg().Log.Debug("copy failed after its start", "err", err)
	}
	return nil
}

// copyIn receives a file or directory.
func (s *Service) copyIn(w http.ResponseWriter, r *http.Request, caller identity.User, path string, query url.Values) error {
	if r.Header.Get("Content-Type") != copytree.ContentType {
		return httpErrorf(http.StatusUnsupportedMediaType, "the body of a copy has the type %s", copytree.ContentType)
	}
	options := copytree.Options{KeepOwners: query.Get("owners") == "keep"}
	if options.KeepOwners {
		if query.Get("username") == "" {
			caller = s.reader(caller, query)
		}
		if !s.cfg().Actor.Switch || caller.UID != 0 {
			return httpErrorf(http.StatusForbidden, "only root can keep the owners of files")
		}
	}
	first, frames, err := copytree.First(copytree.NewReader(r.Body))
	if err != nil {
		return err
	}
	if name, ok := query["name"]; ok {
		first.Name = name[0]
	}
	writer, stage, err := s.stage(caller, path, first, query.Get("username") == "")
	if err != nil {
		return err
	}
	defer stage.Target().Close()
	if writer.UID != caller.UID {
		options.Owner = &copytree.Owner{UID: caller.UID, GID: caller.GID}
	}
	var sum copytree.Summary
	err = s.cfg().Actor.Do(writer, func() (err error) {
		defer stage.Close()
		sum, err = stage.Receive(r.Context(), frames, options)
		return err
	})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, struct {
		Path []byte `json:"path"` // as base64, because it need not be UTF-8
		copytree.Summary
	}{[]byte(stage.Target().Path()), sum})
	return nil
}

// stage opens the destination of a copy with the rights of the caller. If the caller may not write
// there and asRoot is set, root writes and changes the owner to the caller. Root then follows no
// symbolic links, because a program of the caller may have created them to redirect root's writes.
func (s *Service) stage(caller identity.User, path string, first copytree.Entry, asRoot bool) (identity.User, *copytree.Stage, error) {
	open := func(as identity.User, locate func() (*copytree.Target, error)) (stage *copytree.Stage, err error) {
		err = s.cfg().Actor.Do(as, func() error {
			target, err := locate()
			if err != nil {
				return err
			}
			if stage, err = copytree.Begin(target); err != nil {
				target.Close()
			}
			return err
		})
		return stage, err
	}
	stage, err := open(caller, func() (*copytree.Target, error) { return copytree.Locate(path, first, true) })
	if !asRoot || !give.Possible(s.cfg().Actor, s.cfg().Accounts, caller, err) {
		return caller, stage, err
	}
	root, rootErr := s.account("root")
	if rootErr == nil {
		stage, rootErr = open(root, func() (*copytree.Target, error) { return copytree.LocateStrict(path, first) })
	}
	if rootErr != nil {
		return caller, nil, err
	}
	return root, stage, nil
}

// failCopy answers with an error about a copy.
func (s *Service) failCopy(w http.ResponseWriter, path string, err error) {
	if sourceErr, ok := errors.AsType[*copytree.SourceError](err); ok {
		err = httpErrorf(http.StatusBadRequest, "%s", sourceErr.Text)
	}
	if errors.Is(err, copytree.ErrMalformed) {
		err = httpErrorf(http.StatusBadRequest, "%v", err)
	}
	requestErr, is := errors.AsType[*httpError](err)
	switch {
	case is && requestErr != nil:
	case fault.CodeOf(err) == copytree.CodeDiskFull:
		err = httpErrorf(http.StatusInsufficientStorage, "not enough disk space in the sandbox")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
	default:
		// The caller may see errors of the file system.
		if _, ok := errors.AsType[syscall.Errno](err); ok {
			err = httpErrorf(http.StatusConflict, "%v", err)
		}
	}
	s.fail(w, path, err)
}
