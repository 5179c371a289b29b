package watch

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/crannog/crannog/internal/engine/gvisor/numbers"
)

// writes reports whether the flags of an open allow changes to a file.
func writes(flags uint32) bool {
	return flags&linux.O_PATH == 0 && flags&(linux.O_ACCMODE|linux.O_CREAT|linux.O_TRUNC) != 0
}

// openMode is the part of a mode that open uses.
const openMode = 0o777 | linux.S_ISUID | linux.S_ISGID | linux.S_ISVTX

// open opens a file, and notes one that may be written before any thread has the descriptor.
func (w *watcher) open(t *sentry.Task, dirfd int32, addr hostarch.Addr, flags uint32, mode uint, resolve uint64) (uintptr, error) {
	path, err := copyPath(t, addr)
	if err != nil {
		return 0, err
	}
	if path == "" {
		return 0, linuxerr.ENOENT
	}
	parsed := fspath.Parse(path)
	if parsed.Absolute && resolve&linux.RESOLVE_BENEATH != 0 {
		return 0, linuxerr.EXDEV
	}
	root := t.FSContext().RootDirectory()
	defer root.DecRef(t)
	from := path
	if resolve&linux.RESOLVE_IN_ROOT != 0 {
		from = "." // an absolute path also begins at the descriptor
	}
	dir, err := start(t, dirfd, root, from)
	if err != nil {
		return 0, err
	}
	defer dir.DecRef(t)
	file, err := t.Kernel().VFS().OpenAt(t, t.Credentials(), &vfs.PathOperation{
		Root: root, Start: dir, Path: parsed, FollowFinalSymlink: flags&linux.O_NOFOLLOW == 0, ResolveFlags: resolve,
	}, &vfs.OpenOptions{
		Flags: flags | linux.O_LARGEFILE, Mode: linux.FileMode(mode & openMode &^ t.FSContext().Umask()),
	})
	if err != nil {
		return 0, err
	}
	defer file.DecRef(t)
	if writes(flags) {
		w.noteOpened(t, file, flags)
	}
	fd, err := t.NewFDFrom(0, file, sentry.FDFlags{CloseOnExec: flags&linux.O_CLOEXEC != 0})
	return uintptr(fd), err
}

// noteOpened notes a file that was opened for writing.
func (w *watcher) noteOpened(t *sentry.Task, file *vfs.FileDescription, flags uint32) {
	places := w.recordedMounts(t.Kernel())
	if places == nil || places.mounts[file.Mount().Filesystem()] == nil {
		return
	}
	by := w.actorOf(t)
	path := w.path(t, t.Kernel(), file.VirtualDentry())
	if file.IsWritable() || file.IsCreated() || flags&linux.O_TRUNC != 0 {
		w.files.note(path, !file.IsCreated(), by)
	}
	if file.IsWritable() {
		numbers.CopyNumbers(t, t.Kernel(), file.VirtualDentry(), true)
		h := held{path: path, actor: by}
		if path == "" {
			h.file = inodeOf(t, file)
		}
		w.files.hold(file, h)
	}
}

// knownResolve are the known lookup flags of openat2.
const knownResolve = linux.RESOLVE_BENEATH | linux.RESOLVE_IN_ROOT | linux.RESOLVE_CACHED |
	linux.RESOLVE_NO_MAGICLINKS | linux.RESOLVE_NO_SYMLINKS | linux.RESOLVE_NO_XDEV

// openHow implements openat2, whose flags are in the program's memory and are read only once.
func (w *watcher) openHow(t *sentry.Task, dirfd int32, path, addr hostarch.Addr, size uint) (uintptr, error) {
	var how linux.OpenHow
	switch {
	case size < linux.OPEN_HOW_SIZE_VER0:
		return 0, linuxerr.EINVAL
	case size > hostarch.PageSize:
		return 0, linuxerr.E2BIG
	}
	if _, err := how.CopyInN(t, addr, min(int(size), linux.OPEN_HOW_SIZE_LATEST)); err != nil {
		return 0, err
	}
	if size > linux.OPEN_HOW_SIZE_LATEST {
		more := make([]byte, size-linux.OPEN_HOW_SIZE_LATEST)
		if _, err := t.CopyInBytes(addr+linux.OPEN_HOW_SIZE_LATEST, more); err != nil {
			return 0, err
		}
		for _, b := range more {
			if b != 0 {
				return 0, linuxerr.E2BIG
			}
		}
	}
	changes := how.Flags & (linux.O_CREAT | linux.O_TMPFILE | linux.O_TRUNC)
	switch {
	case how.Resolve&^knownResolve != 0,
		how.Resolve&linux.RESOLVE_BENEATH != 0 && how.Resolve&linux.RESOLVE_IN_ROOT != 0,
		how.Flags&^linux.ValidOpenFlags != 0,
		how.Flags&(linux.O_DIRECTORY|linux.O_CREAT) == linux.O_DIRECTORY|linux.O_CREAT,
		how.Flags&linux.O_PATH != 0 && how.Flags&^linux.ValidOPathFlags != 0,
		how.Mode != 0 && changes&(linux.O_CREAT|linux.O_TMPFILE) == 0,
		how.Mode&^0o7777 != 0:
		return 0, linuxerr.EINVAL
	case how.Resolve&linux.RESOLVE_CACHED != 0 && changes != 0:
		return 0, linuxerr.EAGAIN
	}
	return w.open(t, dirfd, path, uint32(how.Flags), uint(how.Mode), how.Resolve)
}
