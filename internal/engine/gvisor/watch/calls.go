package watch

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
)

// call is our version of a system call. Without a watcher, gVisor's own is used.
type call func(w *watcher, t *sentry.Task, args arch.SyscallArguments) (uintptr, error)

// currentDir stands for the program's working directory, to which a relative path refers.
const currentDir = linux.AT_FDCWD

// calls holds our versions of the calls by which programs change files, except those on a writable
// descriptor, because opening one was noted.
var calls = map[string]call{
	"open": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return w.open(t, currentDir, a[0].Pointer(), a[1].Uint(), a[2].ModeT(), 0)
	},
	"openat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return w.open(t, a[0].Int(), a[1].Pointer(), a[2].Uint(), a[3].ModeT(), 0)
	},
	"openat2": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return w.openHow(t, a[0].Int(), a[1].Pointer(), a[2].Pointer(), a[3].SizeT())
	},
	"creat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return w.open(t, currentDir, a[0].Pointer(), linux.O_WRONLY|linux.O_CREAT|linux.O_TRUNC, a[1].ModeT(), 0)
	},
	"truncate": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.truncate(t, a[0].Pointer(), a[1].Int64())
	},
	"mkdir": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.mkdir(t, currentDir, a[0].Pointer(), a[1].ModeT())
	},
	"mkdirat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.mkdir(t, a[0].Int(), a[1].Pointer(), a[2].ModeT())
	},
	"mknod": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.mknod(t, currentDir, a[0].Pointer(), a[1].ModeT(), a[2].Uint())
	},
	"mknodat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.mknod(t, a[0].Int(), a[1].Pointer(), a[2].ModeT(), a[3].Uint())
	},
	"rmdir": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.remove(t, currentDir, a[0].Pointer(), linux.AT_REMOVEDIR)
	},
	"unlink": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.remove(t, currentDir, a[0].Pointer(), 0)
	},
	"unlinkat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.remove(t, a[0].Int(), a[1].Pointer(), a[2].Int())
	},
	"symlink": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.symlink(t, a[0].Pointer(), currentDir, a[1].Pointer())
	},
	"symlinkat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.symlink(t, a[0].Pointer(), a[1].Int(), a[2].Pointer())
	},
	"link": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.hardLink(t, pair{currentDir, currentDir, a[0].Pointer(), a[1].Pointer()}, 0)
	},
	"linkat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.hardLink(t, pair{a[0].Int(), a[2].Int(), a[1].Pointer(), a[3].Pointer()}, a[4].Int())
	},
	"rename": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.rename(t, pair{currentDir, currentDir, a[0].Pointer(), a[1].Pointer()}, 0)
	},
	"renameat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.rename(t, pair{a[0].Int(), a[2].Int(), a[1].Pointer(), a[3].Pointer()}, 0)
	},
	"renameat2": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.rename(t, pair{a[0].Int(), a[2].Int(), a[1].Pointer(), a[3].Pointer()}, a[4].Uint())
	},
	"chmod": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.chmod(t, currentDir, a[0].Pointer(), a[1].ModeT())
	},
	"fchmodat": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.chmod(t, a[0].Int(), a[1].Pointer(), a[2].ModeT())
	},
	"fchmod": func(w *watcher, t *sentry.Task, a arch.SyscallArguments) (uintptr, error) {
		return 0, w.chmodOpen(t, a[0].Int(), a[1].ModeT())
	},
}

// conditionalCalls holds the calls that are passed to gVisor unless their arguments request a
// change, because a call that only reads must cost nothing.
var conditionalCalls = map[string]func(arch.SyscallArguments) bool{
	"open":   func(a arch.SyscallArguments) bool { return writes(a[1].Uint()) },
	"openat": func(a arch.SyscallArguments) bool { return writes(a[2].Uint()) },
	// These calls may close a descriptor that was open when the sandbox was saved.
	"close": never, "close_range": never, "dup2": never, "dup3": never,
}

// never is the condition of calls that are always passed to gVisor.
func never(arch.SyscallArguments) bool { return false }

// pair holds the two paths of one call.
type pair struct {
	oldDir, newDir   int32
	oldPath, newPath hostarch.Addr
}

// wrap replaces gVisor's calls in a table, which the caller has initialised.
func wrap(table *sentry.SyscallTable) {
	for number, entry := range table.Table {
		ours, condition := calls[entry.Name], conditionalCalls[entry.Name]
		changed := ours != nil || condition != nil
		if changed {
			entry.Fn = withWatcher(entry.Fn, ours, condition)
		}
		fn, reportsLimit := withLimitEvents(entry.Name, entry.Fn)
		if reportsLimit || changed {
			entry.Fn = fn
			table.Table[number] = entry
		}
	}
}

// withWatcher returns a function that makes our call if there is a watcher and the condition holds,
// and gVisor's original otherwise.
func withWatcher(original sentry.SyscallFn, ours call, condition func(arch.SyscallArguments) bool) sentry.SyscallFn {
	return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
		w := current.Load()
		if w == nil {
			return original(t, number, args)
		}
		if !w.started.Load() || w.kernel.Load() == nil {
			if err := w.join(t); err != nil {
				return 0, nil, err
			}
		}
		if condition != nil && !condition(args) {
			return original(t, number, args)
		}
		value, err := ours(w, t, args)
		return value, nil, err
	}
}
