package numbers

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// pathArgument is a file in the arguments of a call, named by a path, or by a descriptor if there
// is no path.
type pathArgument struct {
	dir    int32
	path   hostarch.Addr
	follow bool
}

// named are the calls that may copy up a file which they name.
var named = map[string]func(arch.SyscallArguments) []pathArgument{
	"link": func(a arch.SyscallArguments) []pathArgument {
		return []pathArgument{{linux.AT_FDCWD, a[0].Pointer(), false}}
	},
	"linkat": func(a arch.SyscallArguments) []pathArgument {
		return atWith(a, a[4].Int()&linux.AT_SYMLINK_FOLLOW != 0)
	},
	"rename": func(a arch.SyscallArguments) []pathArgument {
		return []pathArgument{{linux.AT_FDCWD, a[0].Pointer(), false}}
	},
	"renameat":  func(a arch.SyscallArguments) []pathArgument { return atWith(a, false) },
	"renameat2": exchanged,
	"chmod":     atWorkingDir,
	"fchmodat":  func(a arch.SyscallArguments) []pathArgument { return atWith(a, true) },
	"fchmodat2": func(a arch.SyscallArguments) []pathArgument {
		return atWith(a, a[3].Int()&linux.AT_SYMLINK_NOFOLLOW == 0)
	},
	"chown":  atWorkingDir,
	"lchown": itself,
	"fchownat": func(a arch.SyscallArguments) []pathArgument {
		return atWith(a, a[4].Int()&linux.AT_SYMLINK_NOFOLLOW == 0)
	},
	"utime":     atWorkingDir,
	"utimes":    atWorkingDir,
	"futimesat": func(a arch.SyscallArguments) []pathArgument { return atWith(a, true) },
	"utimensat": func(a arch.SyscallArguments) []pathArgument {
		return atWith(a, a[3].Int()&linux.AT_SYMLINK_NOFOLLOW == 0)
	},
	"setxattr":     atWorkingDir,
	"removexattr":  atWorkingDir,
	"lsetxattr":    itself,
	"lremovexattr": itself,
	"truncate":     atWorkingDir,
	"fchmod":       open,
	"fchown":       open,
	"fsetxattr":    open,
	"fremovexattr": open,
}

// atWorkingDir returns the file at the path in the first argument, following links.
func atWorkingDir(a arch.SyscallArguments) []pathArgument {
	return []pathArgument{{linux.AT_FDCWD, a[0].Pointer(), true}}
}

// itself is like atWorkingDir, but does not follow a link at the end of the path.
func itself(a arch.SyscallArguments) []pathArgument {
	return []pathArgument{{linux.AT_FDCWD, a[0].Pointer(), false}}
}

// open returns the file behind the descriptor in the first argument.
func open(a arch.SyscallArguments) []pathArgument { return []pathArgument{{dir: a[0].Int()}} }

// atWith returns the file at a path relative to a directory, the first two arguments.
func atWith(a arch.SyscallArguments, follow bool) []pathArgument {
	return []pathArgument{{a[0].Int(), a[1].Pointer(), follow}}
}

// exchanged returns the moved file, and the other one if the call exchanges two files.
func exchanged(a arch.SyscallArguments) []pathArgument {
	all := atWith(a, false)
	if a[4].Uint()&linux.RENAME_EXCHANGE != 0 {
		all = append(all, pathArgument{a[2].Int(), a[3].Pointer(), false})
	}
	return all
}

// opens are the calls that may copy up a file which they open. The function reports whether the
// arguments allow changes.
var opens = map[string]func(arch.SyscallArguments) bool{
	"open":    func(a arch.SyscallArguments) bool { return writes(a[1].Uint()) },
	"openat":  func(a arch.SyscallArguments) bool { return writes(a[2].Uint()) },
	"openat2": func(arch.SyscallArguments) bool { return true },
	"creat":   func(arch.SyscallArguments) bool { return true },
}

// writes reports whether the flags of an open allow changes to a file.
func writes(flags uint32) bool {
	return flags&linux.O_PATH == 0 && flags&(linux.O_ACCMODE|linux.O_CREAT|linux.O_TRUNC) != 0
}

// makes are calls that create files and copy none. The numbers of these files have to be right from
// the first one on.
var makes = map[string]bool{"mkdir": true, "mkdirat": true, "mknod": true, "mknodat": true, "symlink": true, "symlinkat": true, "bind": true}

// Install wraps the calls in the tables.
func Install(tables ...*sentry.SyscallTable) {
	for _, table := range tables {
		for number, entry := range table.Table {
			if fn := wrapped(entry.Name, entry.Fn); fn != nil {
				entry.Fn = fn
				table.Table[number] = entry
			}
		}
	}
}

// wrapped returns a call that copies the numbers of the files that it copies up, or nil if the call
// copies and creates no files.
func wrapped(name string, fn sentry.SyscallFn) sentry.SyscallFn {
	if may := opens[name]; may != nil {
		return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
			if !may(args) {
				return fn(t, number, args)
			}
			unifyDevices(t)
			fd, control, err := fn(t, number, args)
			if err == nil && control == nil {
				opened(t, int32(fd))
			}
			return fd, control, err
		}
	}
	if places := named[name]; places != nil {
		content := name == "truncate"
		return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
			unifyDevices(t)
			files := hold(t, places(args))
			value, control, err := fn(t, number, args)
			for _, vd := range files {
				CopyNumbers(t, t.Kernel(), vd, content)
				vd.DecRef(t)
			}
			return value, control, err
		}
	}
	if makes[name] {
		return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
			unifyDevices(t)
			return fn(t, number, args)
		}
	}
	return nil
}

// opened copies the numbers of a file that was opened for writing.
func opened(t *sentry.Task, fd int32) {
	file := t.GetFile(fd)
	if file == nil {
		return
	}
	defer file.DecRef(t)
	if file.IsWritable() {
		CopyNumbers(t, t.Kernel(), file.VirtualDentry(), true)
	}
}

// hold finds the files of a call that are not copied up yet, and takes a reference to each. Without
// a reference, the link to the original file would be lost. If programs change the path at the same
// time, only the number of their own file is lost.
func hold(t *sentry.Task, places []pathArgument) []vfs.VirtualDentry {
	var files []vfs.VirtualDentry
	for _, p := range places {
		vd, ok := find(t, p)
		if !ok {
			continue
		}
		d := vd.Dentry().Impl()
		if over := overlayOf(d); over == nil || over.err != nil || at[atomicbitops.Uint32](object(d), over.copied).Load() != 0 {
			vd.DecRef(t)
			continue
		}
		files = append(files, vd)
	}
	return files
}

// find looks up the file of an argument as the call would. The caller drops the reference.
func find(t *sentry.Task, p pathArgument) (vd vfs.VirtualDentry, ok bool) {
	path := ""
	if p.path != 0 {
		var err error
		if path, err = t.CopyInString(p.path, linux.PATH_MAX); err != nil {
			return vd, false
		}
	}
	top := t.FSContext().RootDirectory()
	defer top.DecRef(t)
	parsed := fspath.Parse(path)
	start := top
	switch {
	case parsed.Absolute:
		start.IncRef()
	case p.dir == linux.AT_FDCWD:
		start = t.FSContext().WorkingDirectory()
	default:
		file := t.GetFile(p.dir)
		if file == nil {
			return vd, false
		}
		start = file.VirtualDentry()
		start.IncRef()
		file.DecRef(t)
	}
	if path == "" {
		return start, true
	}
	defer start.DecRef(t)
	vd, err := t.Kernel().VFS().GetDentryAt(t, t.Credentials(), &vfs.PathOperation{
		Root: top, Start: start, Path: parsed, FollowFinalSymlink: p.follow,
	}, &vfs.GetDentryOptions{})
	return vd, err == nil
}
