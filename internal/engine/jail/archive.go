package jail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/linux/holes"
	"github.com/crannog/crannog/internal/engine/linux/overlaytar"
	"github.com/crannog/crannog/internal/fault"
)

// mostArchived bounds the size of the files of an archive, including their holes. Whatever reads an
// archive has to go through all of it, and a sandbox can make a file of any size at no cost.
const mostArchived = 256 << 30

// Archive implements engine.Archiver. What a sandbox writes is in the upper directories of its
// overlays, which the engine reads. Where control groups can stop the sandbox, it stands still
// while they are read. Elsewhere a file that is written at that time may be in the archive in part.
func (e *Engine) Archive(ctx context.Context, id string, w io.Writer) error {
	return e.exclusively(ctx, id, func(b *instance) error {
		if frozen, err := b.rec.Group.Frozen(); err != nil {
			return b.orStopped(err)
		} else if frozen {
			return engine.Frozen(id)
		}
		if b.e.groups.Freezes() {
			resume, err := b.standStill()
			if err != nil {
				return b.orStopped(err)
			}
			defer func() {
				if err := resume(); err != nil {
					e.log.Error("sandbox stands still after its files were read", "sandbox", id, "err", err)
				}
			}()
		}
		err := holes.Through(w, func(in *os.File) error { return b.archive(ctx, in) })
		if failed := context.Cause(ctx); failed != nil {
			return failed
		}
		return archiveFault(id, b.orStopped(err))
	})
}

// Extract implements engine.Archiver. There is no saved memory that files could be in.
func (e *Engine) Extract(_ context.Context, spec engine.Spec, _ string, _ io.Writer) error {
	return fault.Newf(fault.Unsupported, "state_unsupported", "the engine %s saves no memory, so there are no files of sandbox %q in one", e.name(), spec.ID)
}

// archive writes the sandbox's changes.
func (b *instance) archive(ctx context.Context, w io.Writer) error {
	view, err := b.openView()
	if err != nil {
		return fmt.Errorf("view of the layers: %w", err)
	}
	defer view.Close()
	if err := b.checkView(view); err != nil {
		return fmt.Errorf("view of the layers: %w", err)
	}
	layers, options, err := b.layersOf(view)
	if err != nil {
		return fmt.Errorf("view of the layers: %w", err)
	}
	defer func() {
		for _, l := range layers {
			_ = l.Upper.Close() // nothing is written to it
		}
	}()
	return overlaytar.Write(ctx, w, layers, options)
}

// openView takes a copy of the descriptor of the guest. Its path below /proc could be opened by root
// alone.
func (b *instance) openView() (*os.Root, error) {
	guest, err := unix.PidfdOpen(b.rec.Init.PID, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(guest)
	fd, err := unix.PidfdGetfd(guest, setup.LayersFD, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	defer unix.Close(fd)
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// checkView makes sure that what was opened is of this sandbox, and not of a process that got its
// number since, and that it is a file system in memory: the guest may have been taken over and show
// something else.
func (b *instance) checkView(view *os.Root) error {
	f, err := view.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if stat.Type != unix.TMPFS_MAGIC || stat.Flags&unix.ST_RDONLY == 0 {
		return errors.New("the guest shows another file system than its own")
	}
	if !b.rec.Init.Alive() {
		return fs.ErrNotExist
	}
	return nil
}

// largestLayers bounds the description of the layers.
const largestLayers = 4 << 20

// layersOf opens the layers of a view.
func (b *instance) layersOf(view *os.Root) (list []overlaytar.Layer, o overlaytar.Options, err error) {
	f, err := view.Open(setup.LayersName)
	if err != nil {
		return nil, o, err
	}
	defer f.Close()
	var described setup.Layers
	if err := json.NewDecoder(io.LimitReader(f, largestLayers)).Decode(&described); err != nil {
		return nil, o, err
	}
	for _, upper := range described.Uppers {
		root, err := view.OpenRoot(upper.Dir)
		if err != nil {
			for _, l := range list {
				_ = l.Upper.Close() // nothing is written to it
			}
			return nil, o, err
		}
		list = append(list, overlaytar.Layer{Upper: root, Path: upper.Path})
	}
	return list, overlaytar.Options{Owner: b.ownerInside, Unchanged: described.Copied, Removed: described.Absent, Most: mostArchived}, nil
}

// overflowID is what the kernel shows for an ID that has no number in a namespace.
const overflowID = 65534

// ownerInside returns the IDs inside of IDs on the host.
func (b *instance) ownerInside(uid, gid int) (int, int) {
	if b.e.rootless {
		return engine.UserID, engine.UserID
	}
	in := func(id int) int {
		if id -= b.rec.idBase(); id < 0 || id >= rangeIDs {
			return overflowID
		}
		return id
	}
	return in(uid), in(gid)
}

// archiveFault explains the errors that a user can do something about.
func archiveFault(id string, err error) error {
	switch {
	case errors.Is(err, overlaytar.ErrTooLarge):
		return fault.Wrap(err, fault.Exhausted, "file_too_large", fmt.Sprintf("the files of sandbox %q are larger than %d GiB, holes included", id, int64(mostArchived)>>30)).
			WithHint("remove files with large holes")
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(err, fault.Conflict, "files_unreadable", "files of the sandbox cannot be read by the user that runs crannog: "+strings.TrimPrefix(err.Error(), "archive ")).
			WithHint("make them readable inside with chmod u+rwX, or run crannog as root")
	}
	return err
}
