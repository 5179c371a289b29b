package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/give"
	"github.com/crannog/crannog/internal/guest/identity"
)

// MakeDir creates a directory and its missing parents. Where the user may not create them, root
// creates them and changes their owner to the user.
func (s *Service) MakeDir(_ context.Context, req *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	user, path, err := s.locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	var entry *pb.EntryInfo
	err = s.cfg().Actor.Do(user, func() error {
		if err := makeDir(path); err != nil {
			return err
		}
		entry, err = s.entry(path)
		return err
	})
	if give.Possible(s.cfg().Actor, s.cfg().Accounts, user, err) && give.Dirs(user, path) == nil {
		entry, err = s.entry(path)
	}
	if err != nil {
		return nil, failure("path not found", err)
	}
	return connect.NewResponse(&pb.MakeDirResponse{Entry: entry}), nil
}

// makeDir creates a directory that does not exist yet.
func makeDir(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", path))
	case err == nil:
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path exists and is not a directory: %s", path))
	}
	return os.MkdirAll(path, 0o755)
}

// Move renames an entry, also between file systems.
func (s *Service) Move(_ context.Context, req *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	user, source, err := s.locate(req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	_, destination, err := s.locate(req.Header(), req.Msg.GetDestination())
	if err != nil {
		return nil, err
	}
	var entry *pb.EntryInfo
	attempt := func() error {
		if err := s.move(source, destination); err != nil {
			return err
		}
		entry, err = s.entry(destination)
		return err
	}
	err = s.cfg().Actor.Do(user, attempt)
	// Root only creates missing directories. It does not write into an existing directory for a
	// user who may not.
	parent := filepath.Dir(destination)
	if _, missing := os.Lstat(parent); errors.Is(missing, fs.ErrNotExist) && give.Possible(s.cfg().Actor, s.cfg().Accounts, user, err) && give.Dirs(user, parent) == nil {
		err = s.cfg().Actor.Do(user, attempt)
	}
	if err != nil {
		return nil, failure("source file not found", err)
	}
	return connect.NewResponse(&pb.MoveResponse{Entry: entry}), nil
}

// move renames an entry, and creates the missing parents of the destination.
func (s *Service) move(source, destination string) error {
	if _, err := os.Lstat(source); errors.Is(err, syscall.ENOTDIR) {
		return &fs.PathError{Op: "lstat", Path: source, Err: syscall.ENOENT}
	} else if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(destination), 0o755); err != nil {
		return err
	}
	err := os.Rename(source, destination)
	if errors.Is(err, syscall.EXDEV) {
		return moveAcross(source, destination)
	}
	return err
}

// Remove removes an entry with everything below it.
func (s *Service) Remove(_ context.Context, req *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	user, path, err := s.locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if err := s.remove(user, path); err != nil {
		return nil, failure("path not found", err)
	}
	return connect.NewResponse(&pb.RemoveResponse{}), nil
}

func (s *Service) remove(user identity.User, path string) error {
	if path == "/" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("the root directory cannot be removed"))
	}
	err := s.cfg().Actor.Do(user, func() error { return os.RemoveAll(path) })
	if errors.Is(err, syscall.ENOTDIR) {
		return nil // a parent of the path is a file, so the path does not exist
	}
	return err
}
