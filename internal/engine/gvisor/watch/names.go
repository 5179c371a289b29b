package watch

import (
	"errors"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/crannog/crannog/internal/engine/gvisor/numbers"
)

// changeEntry finds the directory entry in the arguments of a call, makes the call, and notes the
// entry's path.
func (w *watcher) changeEntry(t *sentry.Task, dirfd int32, addr hostarch.Addr, existed bool, do func(*vfs.PathOperation) error) error {
	path, err := copyPath(t, addr)
	if err != nil {
		return err
	}
	e, err := lookup(t, dirfd, path)
	if err != nil {
		return err
	}
	defer e.release(t)
	w.files.names.RLock()
	defer w.files.names.RUnlock()
	if err := do(e.operation()); err != nil {
		return err
	}
	w.files.note(w.entryPath(t, &e), existed, w.actorOf(t))
	return nil
}

// entries finds the two directory entries in the arguments of a call, the old one as the call
// itself would. Like gVisor, it reads both paths before it looks up either.
func entries(t *sentry.Task, p pair, find func(path string) (entry, error)) (old, e entry, err error) {
	from, err := copyPath(t, p.oldPath)
	if err != nil {
		return entry{}, entry{}, err
	}
	to, err := copyPath(t, p.newPath)
	if err != nil {
		return entry{}, entry{}, err
	}
	if old, err = find(from); err != nil {
		return entry{}, entry{}, err
	}
	if e, err = lookup(t, p.newDir, to); err != nil {
		old.release(t)
		return entry{}, entry{}, err
	}
	return old, e, nil
}

// mkdir creates a directory.
func (w *watcher) mkdir(t *sentry.Task, dirfd int32, addr hostarch.Addr, mode uint) error {
	return w.changeEntry(t, dirfd, addr, false, func(op *vfs.PathOperation) error {
		return t.Kernel().VFS().MkdirAt(t, t.Credentials(), op, &vfs.MkdirOptions{
			Mode: linux.FileMode(mode & (0o777 | linux.S_ISVTX) &^ t.FSContext().Umask()),
		})
	})
}

// mknod creates a file of any kind except a directory or a link.
func (w *watcher) mknod(t *sentry.Task, dirfd int32, addr hostarch.Addr, mode uint, device uint32) error {
	file := linux.FileMode(mode)
	whiteout := file.FileType() == linux.ModeCharacterDevice && device == linux.WHITEOUT_DEV
	switch file.FileType() {
	case 0:
		file |= linux.ModeRegular
	case linux.ModeCharacterDevice, linux.ModeBlockDevice:
		// gVisor reports an unreadable or empty path before any other error.
		if path, err := copyPath(t, addr); err != nil {
			return err
		} else if path == "" {
			return linuxerr.ENOENT
		}
		if !whiteout && !t.HasRootCapability(linux.CAP_MKNOD) {
			return linuxerr.EPERM
		}
	}
	major, minor := linux.DecodeDeviceID(device)
	return w.changeEntry(t, dirfd, addr, false, func(op *vfs.PathOperation) error {
		return t.Kernel().VFS().MknodAt(t, t.Credentials(), op, &vfs.MknodOptions{
			Mode: file &^ linux.FileMode(t.FSContext().Umask()), DevMajor: uint32(major), DevMinor: minor,
		})
	})
}

// remove removes a name, or an empty directory if the flags request it.
func (w *watcher) remove(t *sentry.Task, dirfd int32, addr hostarch.Addr, flags int32) error {
	if flags&^linux.AT_REMOVEDIR != 0 {
		return linuxerr.EINVAL
	}
	return w.changeEntry(t, dirfd, addr, true, func(op *vfs.PathOperation) error {
		if flags&linux.AT_REMOVEDIR != 0 {
			return t.Kernel().VFS().RmdirAt(t, t.Credentials(), op)
		}
		return t.Kernel().VFS().UnlinkAt(t, t.Credentials(), op)
	})
}

// symlink creates a symbolic link.
func (w *watcher) symlink(t *sentry.Task, to hostarch.Addr, dirfd int32, addr hostarch.Addr) error {
	target, err := copyPath(t, to)
	if err != nil {
		return err
	}
	if target == "" {
		return linuxerr.ENOENT
	}
	return w.changeEntry(t, dirfd, addr, false, func(op *vfs.PathOperation) error {
		return t.Kernel().VFS().SymlinkAt(t, t.Credentials(), op, target)
	})
}

// hardLink adds a name to a file. A write through one name changes the content at the others too,
// so the names are recorded.
func (w *watcher) hardLink(t *sentry.Task, p pair, flags int32) error {
	if flags&^(linux.AT_EMPTY_PATH|linux.AT_SYMLINK_FOLLOW) != 0 {
		return linuxerr.EINVAL
	}
	old, e, err := entries(t, p, func(path string) (entry, error) { return w.linkSource(t, p.oldDir, path, flags) })
	if err != nil {
		return err
	}
	defer old.release(t)
	defer e.release(t)
	w.files.names.RLock()
	defer w.files.names.RUnlock()
	source := old.operation()
	source.FollowFinalSymlink = flags&linux.AT_SYMLINK_FOLLOW != 0
	if err := t.Kernel().VFS().LinkAt(t, t.Credentials(), source, e.operation()); err != nil {
		return err
	}
	// The file gets its final number now, because its names are recorded by that number.
	if vd, err := t.Kernel().VFS().GetDentryAt(t, kernelCredentials(t.Kernel()), source, &vfs.GetDentryOptions{}); err == nil {
		numbers.CopyNumbers(t, t.Kernel(), vd, false)
		vd.DecRef(t)
	}
	path := w.entryPath(t, &e)
	w.files.note(path, false, w.actorOf(t))
	if stat, err := t.Kernel().VFS().StatAt(t, kernelCredentials(t.Kernel()), e.operation(), &vfs.StatOptions{Mask: linux.STATX_INO}); err == nil {
		w.files.link(inodeIn(stat), path, w.entryPath(t, &old))
	}
	return nil
}

// linkSource returns the file to which a link is made, given by a path or by a descriptor.
func (w *watcher) linkSource(t *sentry.Task, dirfd int32, path string, flags int32) (entry, error) {
	if path != "" {
		return lookup(t, dirfd, path)
	}
	if flags&linux.AT_EMPTY_PATH == 0 {
		return entry{}, linuxerr.ENOENT
	}
	e := entry{root: t.FSContext().RootDirectory()}
	var err error
	if dirfd == linux.AT_FDCWD {
		e.dir = t.FSContext().WorkingDirectory()
		return e, nil
	}
	f := t.GetFile(dirfd)
	if f == nil {
		err = linuxerr.EBADF
	} else {
		defer f.DecRef(t)
		// A descriptor that another process opened may have been passed on, although the
		// permissions of the file's directory forbid access.
		if f.Credentials() != t.Credentials() && !t.HasCapabilityIn(linux.CAP_DAC_READ_SEARCH, f.Credentials().UserNamespace) {
			err = linuxerr.ENOENT
		}
	}
	if err != nil {
		e.root.DecRef(t)
		return entry{}, err
	}
	e.dir = f.VirtualDentry()
	e.dir.IncRef()
	return e, nil
}

// rename moves a file, or a directory with everything below it.
func (w *watcher) rename(t *sentry.Task, p pair, flags uint32) error {
	old, e, err := entries(t, p, func(path string) (entry, error) { return lookup(t, p.oldDir, path) })
	if err != nil {
		return err
	}
	defer old.release(t)
	defer e.release(t)
	w.files.names.Lock()
	defer w.files.names.Unlock()
	_, err = t.Kernel().VFS().StatAt(t, kernelCredentials(t.Kernel()), e.operation(), &vfs.StatOptions{Mask: linux.STATX_TYPE})
	existed := err == nil
	if err := t.Kernel().VFS().RenameAt(t, t.Credentials(), old.operation(), e.operation(), &vfs.RenameOptions{Flags: flags}); err != nil {
		return err
	}
	by, before, after := w.actorOf(t), w.entryPath(t, &old), w.entryPath(t, &e)
	w.files.note(before, true, by)
	w.files.note(after, existed, by)
	moved := w.below(t, &e)
	var exchanged map[string]bool // the files that moved in the other direction
	if flags&linux.RENAME_EXCHANGE != 0 {
		exchanged = w.below(t, &old)
	}
	for _, files := range []map[string]bool{moved, exchanged} {
		for file := range files {
			// If both directories had a file of that name, both names now lead to other files.
			w.files.note(join(before, file), moved[file], by)
			w.files.note(join(after, file), exchanged[file], by)
		}
	}
	return nil
}

// join returns the path of a file below a directory, or "" if the directory is not recorded.
func join(dir, file string) string {
	if dir == "" {
		return ""
	}
	return dir + "/" + file
}

// kernelCredentials returns the rights of the kernel itself.
func kernelCredentials(k *sentry.Kernel) *auth.Credentials {
	return auth.NewRootCredentials(k.RootUserNamespace())
}

// errMany stops the reading of a directory that has too many files.
var errMany = errors.New("too many files")

// below lists the files below a directory entry.
func (w *watcher) below(t *sentry.Task, e *entry) map[string]bool {
	all := map[string]bool{}
	stat, err := t.Kernel().VFS().StatAt(t, kernelCredentials(t.Kernel()), e.operation(), &vfs.StatOptions{Mask: linux.STATX_TYPE})
	if err != nil || stat.Mode&linux.S_IFMT != linux.S_IFDIR {
		return nil
	}
	if err := w.list(t, e.operation(), "", all); err != nil {
		w.files.mu.Lock()
		w.files.lost++
		w.files.mu.Unlock()
	}
	return all
}

// list adds the files below a directory to all, with prefix before their names.
func (w *watcher) list(t *sentry.Task, op *vfs.PathOperation, prefix string, all map[string]bool) error {
	k := t.Kernel()
	dir, err := k.VFS().OpenAt(t, kernelCredentials(k), op, &vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_DIRECTORY})
	if err != nil {
		return err
	}
	defer dir.DecRef(t)
	var dirs []string
	err = dir.IterDirents(t, vfs.IterDirentsCallbackFunc(func(d vfs.Dirent) error {
		if d.Name == "." || d.Name == ".." {
			return nil
		}
		if len(all) >= maxNotes/2 {
			return errMany
		}
		all[prefix+d.Name] = true
		if d.Type == linux.DT_DIR {
			dirs = append(dirs, d.Name)
		}
		return nil
	}))
	for _, name := range dirs {
		if err == nil {
			err = w.list(t, &vfs.PathOperation{Root: op.Root, Start: dir.VirtualDentry(), Path: fspath.Parse(name)}, prefix+name+"/", all)
		}
	}
	return err
}

// modeBits is the part of a mode that chmod changes.
const modeBits = 0o777 | linux.S_ISUID | linux.S_ISGID | linux.S_ISVTX

// setAttributes changes attributes of the file at a path.
func (w *watcher) setAttributes(t *sentry.Task, dirfd int32, addr hostarch.Addr, options *vfs.SetStatOptions) error {
	path, err := copyPath(t, addr)
	if err != nil {
		return err
	}
	top, vd, err := file(t, dirfd, path)
	if err != nil {
		return err
	}
	defer top.DecRef(t)
	defer vd.DecRef(t)
	w.files.names.RLock()
	defer w.files.names.RUnlock()
	if err := t.Kernel().VFS().SetStatAt(t, t.Credentials(), &vfs.PathOperation{Root: top, Start: vd}, options); err != nil {
		return err
	}
	w.files.note(w.path(t, t.Kernel(), vd), true, w.actorOf(t))
	return nil
}

// chmod changes the mode of the file at a path.
func (w *watcher) chmod(t *sentry.Task, dirfd int32, addr hostarch.Addr, mode uint) error {
	return w.setAttributes(t, dirfd, addr, &vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_MODE, Mode: uint16(mode & modeBits)}})
}

// chmodOpen changes the mode of an open file.
func (w *watcher) chmodOpen(t *sentry.Task, fd int32, mode uint) error {
	f := t.GetFile(fd)
	if f == nil {
		return linuxerr.EBADF
	}
	defer f.DecRef(t)
	err := f.SetStat(t, vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_MODE, Mode: uint16(mode & modeBits)}})
	if err == nil {
		w.files.note(w.path(t, t.Kernel(), f.VirtualDentry()), true, w.actorOf(t))
	}
	return err
}

// truncate sets the size of the file at a path.
func (w *watcher) truncate(t *sentry.Task, addr hostarch.Addr, length int64) error {
	if length < 0 {
		return linuxerr.EINVAL
	}
	err := w.setAttributes(t, currentDir, addr, &vfs.SetStatOptions{
		Stat: linux.Statx{Mask: linux.STATX_SIZE, Size: uint64(length)}, NeedWritePerm: true, ClearPrivs: true,
	})
	if errors.Is(err, linuxerr.ErrExceedsFileSizeLimit) {
		_ = t.SendSignal(sentry.SignalInfoNoInfo(linux.SIGXFSZ, t, t))
		return linuxerr.EFBIG
	}
	return err
}

// inodeIn returns the inode in the answer of a stat.
func inodeIn(stat linux.Statx) inode {
	return inode{stat.DevMajor, stat.DevMinor, stat.Ino}
}

// inodeOf returns the inode of an open file, or the zero inode if it cannot be read.
func inodeOf(ctx context.Context, f *vfs.FileDescription) inode {
	stat, err := f.Stat(ctx, vfs.StatOptions{Mask: linux.STATX_INO})
	if err != nil {
		return inode{}
	}
	return inodeIn(stat)
}
