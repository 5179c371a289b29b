// Package filesystem owns the file system service: inspecting, creating, moving, removing and
// watching files, always as the user of the request.
package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync/atomic"
	"syscall"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/identity"
)

// Config configures a Service.
type Config struct {
	Accounts identity.Accounts
	Actor    identity.Actor
	// DefaultDir is the directory for an empty path. Empty means the user's home.
	DefaultDir string
}

// Service serves files. It is safe for concurrent use.
type Service struct {
	config   atomic.Pointer[Config]
	watchers watchers
	closing  chan struct{}
}

var _ filesystempbconnect.FilesystemHandler = (*Service)(nil)

// New returns a service without watchers.
func New(cfg Config) *Service {
	s := &Service{watchers: newWatchers(), closing: make(chan struct{})}
	s.Renew(cfg)
	return s
}

// Renew replaces the configuration. Requests in progress continue with the old one.
func (s *Service) Renew(cfg Config) { s.config.Store(&cfg) }

func (s *Service) cfg() *Config { return s.config.Load() }

// Close closes all streams and stops all watchers.
func (s *Service) Close() error {
	if !s.watchers.close() {
		return nil
	}
	close(s.closing)
	return nil
}

// locate returns the user and the absolute path of a request.
func (s *Service) locate(h http.Header, path string) (identity.User, string, error) {
	user, err := s.cfg().Accounts.ByHeader(h)
	if unknown, ok := errors.AsType[*identity.UnknownError](err); ok {
		return user, "", connect.NewError(connect.CodeUnauthenticated, unknown)
	}
	if err != nil {
		return user, "", connect.NewError(connect.CodeInternal, err)
	}
	abs, err := user.Resolve(path, s.cfg().DefaultDir)
	if err != nil {
		return user, "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return user, abs, nil
}

// Stat describes one entry.
func (s *Service) Stat(_ context.Context, req *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	user, path, err := s.locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	var entry *pb.EntryInfo
	err = s.cfg().Actor.Do(user, func() error {
		entry, err = s.entry(path)
		return err
	})
	if errors.Is(err, syscall.ENOTDIR) {
		err = &fs.PathError{Op: "lstat", Path: path, Err: syscall.ENOENT}
	}
	if err != nil {
		return nil, failure("file not found", err)
	}
	return connect.NewResponse(&pb.StatResponse{Entry: entry}), nil
}

// failure converts an error of the kernel to one with a code. missing is the text for a file that
// does not exist.
func failure(missing string, err error) error {
	if connectErr, ok := errors.AsType[*connect.Error](err); ok {
		return connectErr
	}
	code := connect.CodeInternal
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("%s: %w", missing, err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		code = connect.CodePermissionDenied
	case errors.Is(err, fs.ErrExist):
		code = connect.CodeAlreadyExists
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		code = connect.CodeInvalidArgument
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ENOTEMPTY):
		code = connect.CodeFailedPrecondition
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENOMEM):
		code = connect.CodeResourceExhausted
	}
	return connect.NewError(code, err)
}
