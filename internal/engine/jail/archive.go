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

// maxArchivedSize bounds the size of the files of an archive, including their holes. Every reader
// of an archive has to read all of it, and a sandbox can make a file of any size at no cost.
const maxArchivedSize = 256 << 30

// Archive implements engine.Archiver. The engine reads the upper directories of the sandbox's
// overlays. If control groups can freeze the sandbox, it is frozen while they are read. Otherwise a
// file that is written during that time may be incomplete in the archive.
func (e *Engine) Archive(ctx context.Context, id string, w io.Writer) error {
	return e.exclusively(ctx, id, func(b *instance) error {
		if frozen, err := b.rec.Group.Frozen(); err != nil {
			return b.orStopped(err)
		} else if frozen {
			return engine.Frozen(id)
		}
		if b.e.groups.Freezes() {
			resume, err := b.freeze()
			if err != nil {
				return b.orStopped(err)
			}
			defer func() {
				if err := resume(); err != nil {
					e.log.Error("sandbox stays frozen after its files were read", "sandbox", id, "err", err)
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

// Extract implements engine.Archiver. This engine saves no memory, so there is nothing to extract.
func (e *Engine) Extract(_ context.Context, spec engine.Spec, _ string, _ io.Writer) error {
	return fault.Newf(fault.Unsupported, "state_unsupported", "the engine %s saves no memory, so it has no saved files of sandbox %q", e.name(), spec.ID)
}

// archive writes the changed files of the sandbox.
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

// openView copies the guest's descriptor of the view. Only root could open its path below /proc.
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

// checkView checks that the opened directory belongs to this sandbox, and not to a process that has
// reused the PID, and that it is on a tmpfs. An attacker who took over the guest could offer
// another directory.
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
		return errors.New("the guest's descriptor is not a read-only view on a tmpfs")
	}
	if !b.rec.Init.Alive() {
		return fs.ErrNotExist
	}
	return nil
}

// maxLayersSize bounds the size of the description of the layers.
const maxLayersSize = 4 << 20

// layersOf opens the layers of a view.
func (b *instance) layersOf(view *os.Root) (list []overlaytar.Layer, o overlaytar.Options, err error) {
	f, err := view.Open(setup.LayersName)
	if err != nil {
		return nil, o, err
	}
	defer f.Close()
	var described setup.Layers
	if err := json.NewDecoder(io.LimitReader(f, maxLayersSize)).Decode(&described); err != nil {
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
	return list, overlaytar.Options{Owner: b.ownerInside, Unchanged: described.Copied, Removed: described.Absent, Points: described.Points, Most: maxArchivedSize}, nil
}

// overflowID is the ID that the kernel shows in a namespace for unmapped IDs.
const overflowID = 65534

// ownerInside converts the host's user and group ID to those in the sandbox.
func (b *instance) ownerInside(uid, gid int) (int, int) {
	if b.e.rootless {
		return engine.UserID, engine.UserID
	}
	inside := func(id int) int {
		if id -= b.rec.idBase(); id < 0 || id >= rangeIDs {
			return overflowID
		}
		return id
	}
	return inside(uid), inside(gid)
}

// archiveFault converts errors that a user can resolve into faults.
func archiveFault(id string, err error) error {
	switch {
	case errors.Is(err, overlaytar.ErrTooLarge):
		return fault.Wrap(err, fault.Exhausted, "file_too_large", fmt.Sprintf("the files of sandbox %q are larger than %d GiB, holes included", id, int64(maxArchivedSize)>>30)).
			WithHint("remove files with large holes")
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(err, fault.Conflict, "files_unreadable", "files of the sandbox cannot be read by the user that runs crannog: "+strings.TrimPrefix(err.Error(), "archive ")).
			WithHint("make them readable in the sandbox with chmod u+rwX, or run crannog as root")
	}
	return err
}
