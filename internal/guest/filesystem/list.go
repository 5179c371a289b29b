package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// ListDir lists a directory to a depth. A symbolic link as the root is followed, links below it are
// not. The returned paths begin with the requested path.
func (s *Service) ListDir(_ context.Context, req *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	user, path, err := s.locate(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	l := lister{service: s}
	err = s.cfg().Actor.Do(user, func() error { return l.list(path, max(1, req.Msg.GetDepth())) })
	if err != nil {
		return nil, failure("path not found", err)
	}
	return connect.NewResponse(&pb.ListDirResponse{Entries: l.entries}), nil
}

// lister collects entries, directories before their contents.
type lister struct {
	service *Service
	entries []*pb.EntryInfo
	size    int // bytes of the answer
}

// list lists the directory root.
func (l *lister) list(root string, depth uint32) error {
	info, err := os.Stat(root)
	if errors.Is(err, syscall.ELOOP) {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cyclic symbolic link: %s", root))
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", root))
	}
	return l.walk(root, depth)
}

// walk adds the entries of a directory and, to the given depth, of those below it.
func (l *lister) walk(dir string, depth uint32) error {
	children, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, child := range children {
		path := filepath.Join(dir, child.Name())
		info, err := child.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed after the directory was read
		}
		if err != nil {
			return err
		}
		if err := l.add(l.service.describe(path, info), dir); err != nil {
			return err
		}
		if !info.IsDir() || depth <= 1 {
			continue
		}
		err = l.walk(path, depth-1)
		// A directory that the user may not read, or that was removed, is listed without contents.
		if err != nil && !errors.Is(err, os.ErrPermission) && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// add adds an entry, up to the limits of an answer. The answer is built in memory, so a huge tree
// could exhaust the memory of the sandbox. Clients do not accept larger answers either.
func (l *lister) add(e *pb.EntryInfo, dir string) error {
	if len(l.entries) >= guestwire.MaxEntries {
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("more than %d entries below %s: list with a smaller depth", guestwire.MaxEntries, dir))
	}
	l.size += entryTag + protowire.SizeBytes(proto.Size(e))
	if l.size > guestwire.MaxListing {
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("more than %d bytes of entries below %s: list with a smaller depth", guestwire.MaxListing, dir))
	}
	l.entries = append(l.entries, e)
	return nil
}

// entryTag is the size of the protobuf tag before each entry.
var entryTag = protowire.SizeTag(1)
