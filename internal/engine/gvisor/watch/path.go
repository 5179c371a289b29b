package watch

import (
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// A path is read from a program's memory once, and is used both for the call and for the event. If
// the arguments were read separately, another thread of the program could change them in between,
// and hide a file.

// entry is the result of looking up a name in a directory.
type entry struct {
	root, dir vfs.VirtualDentry
	name      string // "" if the path has no last part, such as "/" or ""
	remaining string // the path that gVisor looks up from dir
}

// release drops the entry's references.
func (e *entry) release(t *sentry.Task) {
	e.root.DecRef(t)
	e.dir.DecRef(t)
}

// operation returns the entry in the form that gVisor's file functions take.
func (e *entry) operation() *vfs.PathOperation {
	path := fspath.Parse(e.remaining)
	op := &vfs.PathOperation{Root: e.root, Start: e.dir, Path: path}
	if path.Absolute {
		op.Start = e.root
	}
	return op
}

// start returns where a path begins. The caller drops the reference.
func start(t *sentry.Task, dirfd int32, root vfs.VirtualDentry, path string) (vfs.VirtualDentry, error) {
	if strings.HasPrefix(path, "/") {
		root.IncRef()
		return root, nil
	}
	if dirfd == linux.AT_FDCWD {
		return t.FSContext().WorkingDirectory(), nil
	}
	file := t.GetFile(dirfd)
	if file == nil {
		return vfs.VirtualDentry{}, linuxerr.EBADF
	}
	defer file.DecRef(t)
	vd := file.VirtualDentry()
	vd.IncRef()
	return vd, nil
}

// copyPath reads a path from a program's memory.
func copyPath(t *sentry.Task, addr hostarch.Addr) (string, error) {
	return t.CopyInString(addr, linux.PATH_MAX)
}

// lookup finds the directory that contains, or will contain, the last part of a path.
func lookup(t *sentry.Task, dirfd int32, path string) (entry, error) {
	if path == "" {
		return entry{}, linuxerr.ENOENT
	}
	e := entry{root: t.FSContext().RootDirectory()}
	from, err := start(t, dirfd, e.root, path)
	if err != nil {
		e.root.DecRef(t)
		return entry{}, err
	}
	trimmed := strings.TrimRight(path, "/")
	cut := strings.LastIndexByte(trimmed, '/') + 1
	parent := path[:cut]
	e.name, e.remaining = trimmed[cut:], path[cut:]
	if e.name == "" || parent == "" {
		e.dir = from
		return e, nil
	}
	defer from.DecRef(t)
	e.dir, err = t.Kernel().VFS().GetDentryAt(t, t.Credentials(), &vfs.PathOperation{
		Root: e.root, Start: from, Path: fspath.Parse(parent), FollowFinalSymlink: true,
	}, &vfs.GetDentryOptions{CheckSearchable: true})
	if err != nil {
		e.root.DecRef(t)
		return entry{}, err
	}
	return e, nil
}

// entryPath returns the entry's path, or "" if the file is not recorded.
func (w *watcher) entryPath(t *sentry.Task, e *entry) string {
	if e.name == "" || e.name == "." || e.name == ".." {
		return ""
	}
	dir := w.path(t, t.Kernel(), e.dir)
	switch dir {
	case "":
		return ""
	case "/":
		return "/" + e.name
	}
	return dir + "/" + e.name
}

// file finds an existing file, following links.
func file(t *sentry.Task, dirfd int32, path string) (root, vd vfs.VirtualDentry, err error) {
	if path == "" {
		return root, vd, linuxerr.ENOENT
	}
	root = t.FSContext().RootDirectory()
	from, err := start(t, dirfd, root, path)
	if err != nil {
		root.DecRef(t)
		return root, vd, err
	}
	defer from.DecRef(t)
	vd, err = t.Kernel().VFS().GetDentryAt(t, t.Credentials(), &vfs.PathOperation{
		Root: root, Start: from, Path: fspath.Parse(path), FollowFinalSymlink: true,
	}, &vfs.GetDentryOptions{})
	if err != nil {
		root.DecRef(t)
	}
	return root, vd, err
}
