package filesystem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/keepalive"
	"github.com/crannog/crannog/internal/guest/watch"
)

// watchRequest is the common interface of the two kinds of watch requests.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// watched is a watched directory.
type watched struct {
	*watch.Watcher
	service *Service
	user    identity.User
	root    string
	entries bool // events include the description of the entry
}

// open starts watching a directory.
func (s *Service) open(h http.Header, req watchRequest) (*watched, error) {
	user, path, err := s.locate(h, req.GetPath())
	if err != nil {
		return nil, err
	}
	as := func(work func() error) error { return s.cfg().Actor.Do(user, work) }
	err = as(func() error { return watchable(path, req.GetAllowNetworkMounts()) })
	if err != nil {
		return nil, failure(fmt.Sprintf("path %s not found", path), err)
	}
	w, err := watch.New(path, req.GetRecursive(), as)
	if errors.Is(err, watch.ErrTooMany) {
		return nil, connect.NewError(connect.CodeResourceExhausted, err)
	}
	if err != nil {
		return nil, failure(fmt.Sprintf("path %s not found", path), err)
	}
	return &watched{Watcher: w, service: s, user: user, root: path, entries: req.GetIncludeEntry()}, nil
}

// watchable rejects directories for which the kernel does not report all changes.
func watchable(path string, networkMounts bool) error {
	info, err := os.Stat(path)
	if errors.Is(err, syscall.ENOTDIR) {
		return &os.PathError{Op: "stat", Path: path, Err: syscall.ENOENT}
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %s is not a directory", path))
	}
	if networkMounts {
		return nil
	}
	var mount unix.Statfs_t
	if err := unix.Statfs(path, &mount); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	switch uint32(mount.Type) {
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return connect.NewError(connect.CodeInvalidArgument,
			fmt.Errorf("path %s is on a network file system, where others' changes are not seen", path))
	}
	return nil
}

// event converts a change.
func (w *watched) event(e watch.Event) *pb.FilesystemEvent {
	out := &pb.FilesystemEvent{Name: text(e.Name), Type: eventTypes[e.Op]}
	if !w.entries || e.Op == watch.Remove || e.Op == watch.Rename {
		return out
	}
	// An entry that was removed again cannot be described.
	_ = w.service.cfg().Actor.Do(w.user, func() error {
		entry, err := w.service.entry(filepath.Join(w.root, e.Name))
		if err == nil {
			out.Entry = entry
		}
		return err
	})
	return out
}

var eventTypes = map[watch.Op]pb.EventType{
	watch.Create: pb.EventType_EVENT_TYPE_CREATE,
	watch.Write:  pb.EventType_EVENT_TYPE_WRITE,
	watch.Remove: pb.EventType_EVENT_TYPE_REMOVE,
	watch.Rename: pb.EventType_EVENT_TYPE_RENAME,
	watch.Chmod:  pb.EventType_EVENT_TYPE_CHMOD,
}

// watchError converts the error with which a watcher ended.
func watchError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, watch.ErrOverflow):
		return connect.NewError(connect.CodeDataLoss, err)
	case errors.Is(err, watch.ErrTooMany):
		return connect.NewError(connect.CodeResourceExhausted, err)
	case errors.Is(err, watch.ErrRoot):
		return connect.NewError(connect.CodeNotFound, err)
	}
	return connect.NewError(connect.CodeInternal, err)
}

// WatchDir streams changes until the client disconnects.
func (s *Service) WatchDir(ctx context.Context, req *connect.Request[pb.WatchDirRequest], stream *connect.ServerStream[pb.WatchDirResponse]) error {
	w, err := s.open(req.Header(), req.Msg)
	if err != nil {
		return err
	}
	defer w.Close()
	start := &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}
	if err := stream.Send(&pb.WatchDirResponse{Event: start}); err != nil {
		return err
	}
	interval := keepalive.Interval(req.Header())
	idle := time.NewTimer(interval)
	defer idle.Stop()
	for {
		res := &pb.WatchDirResponse{}
		select {
		case e, ok := <-w.Events():
			if !ok {
				return watchError(w.Err())
			}
			res.Event = &pb.WatchDirResponse_Filesystem{Filesystem: w.event(e)}
		case <-idle.C:
			res.Event = &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			// The sandbox is ending. A clean end of the stream would look as if the directory was
			// removed.
			panic(http.ErrAbortHandler)
		}
		if err := stream.Send(res); err != nil {
			return err
		}
		idle.Reset(interval)
	}
}
