package watch

import (
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/limits"

	"github.com/crannog/crannog/internal/audit/events"
)

// diskCalls holds the calls that may find the disk full, each with a function that returns the
// number of bytes that the call requests.
var diskCalls = map[string]func(arch.SyscallArguments) uint64{
	"write": thirdArgument, "pwrite64": thirdArgument, "writev": unknownSize, "pwritev": unknownSize, "pwritev2": unknownSize,
	"sendfile": unknownSize, "splice": unknownSize, "copy_file_range": unknownSize, "fallocate": fourthArgument,
	"open": unknownSize, "openat": unknownSize, "openat2": unknownSize, "creat": unknownSize, "mkdir": unknownSize, "mkdirat": unknownSize,
	"mknod": unknownSize, "mknodat": unknownSize, "symlink": unknownSize, "symlinkat": unknownSize, "link": unknownSize, "linkat": unknownSize,
	"rename": unknownSize, "renameat": unknownSize, "renameat2": unknownSize,
}

// unknownSize is for calls that need little space, or whose arguments do not contain the number.
func unknownSize(arch.SyscallArguments) uint64      { return 0 }
func thirdArgument(a arch.SyscallArguments) uint64  { return a[2].Uint64() }
func fourthArgument(a arch.SyscallArguments) uint64 { return a[3].Uint64() }

// forkCalls lists the calls that create processes.
var forkCalls = map[string]bool{"clone": true, "clone3": true, "fork": true, "vfork": true}

// withLimitEvents wraps a system call, so that the watcher learns when a limit is reached. It adds
// one comparison to a successful call.
func withLimitEvents(name string, fn sentry.SyscallFn) (sentry.SyscallFn, bool) {
	requestedBytes, usesDisk := diskCalls[name]
	switch {
	case usesDisk:
		return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
			value, control, err := fn(t, number, args)
			if err != nil && linuxerr.Equals(linuxerr.ENOSPC, err) {
				if w := current.Load(); w != nil {
					w.checkDiskFull(t, requestedBytes(args))
				}
			}
			return value, control, err
		}, true
	case forkCalls[name]:
		return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
			value, control, err := fn(t, number, args)
			if err != nil && linuxerr.Equals(linuxerr.EAGAIN, err) {
				if w := current.Load(); w != nil {
					w.checkProcessLimit(t)
				}
			}
			return value, control, err
		}, true
	}
	return fn, false
}

// slack is how many free blocks a full disk may have when it is checked, because other programs may
// free some after the call failed.
const slack = 16

// checkDiskFull reports the limit of the disk if the sandbox's disk is full. The failed call may
// instead have been on a tmpfs, which a program may have mounted with a small size.
func (w *watcher) checkDiskFull(t *sentry.Task, requested uint64) {
	k := t.Kernel()
	p := w.recordedMounts(k)
	if p == nil {
		return
	}
	disk, err := k.VFS().StatFSAt(t, kernelCredentials(k), operation(p.root, "/"))
	if err != nil {
		return
	}
	free := disk.BlocksAvailable
	switch {
	case disk.Files > 0 && disk.FilesFree == 0:
		w.reachedLimit(t, events.LimitInodes, disk.Files)
	case free <= slack || requested/hostarch.PageSize >= free:
		w.reachedLimit(t, events.LimitDisk, disk.Blocks*uint64(disk.BlockSize))
	}
}

// checkProcessLimit reports the limit of processes if the sandbox's own was reached, rather than a
// lower one that a program set for itself.
func (w *watcher) checkProcessLimit(t *sentry.Task) {
	programLimit := t.ThreadGroup().Limits().Get(limits.ProcessCount).Cur
	sandboxLimit := t.Kernel().GlobalInit().Limits().Get(limits.ProcessCount).Cur
	if programLimit >= sandboxLimit && sandboxLimit != linux.RLimInfinity {
		w.reachedLimit(t, events.LimitPIDs, sandboxLimit)
	}
}

// limitEventInterval is the interval at which one command can have an event about one limit,
// because a program may retry often.
const limitEventInterval = time.Minute

// maxLimitTimes bounds the number of entries of limitTimes. When it is reached, all entries are
// dropped.
const maxLimitTimes = 256

// limitTimes records when each command last reached each limit.
type limitTimes struct {
	mu   sync.Mutex
	last map[limitKey]time.Time
}

// limitKey identifies one limit as reached by one command.
type limitKey struct {
	limit   string
	command int32
}

// isRecent reports whether an event was written for this key within limitEventInterval. If not, it
// records the present one.
func (m *limitTimes) isRecent(key limitKey, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.last[key]; ok && now.Sub(last) < limitEventInterval {
		return true
	}
	if m.last == nil || len(m.last) >= maxLimitTimes {
		m.last = map[limitKey]time.Time{}
	}
	m.last[key] = now
	return false
}

// reachedLimit writes an event about a limit that a task reached, unless there was one recently.
func (w *watcher) reachedLimit(t *sentry.Task, limit string, maximum uint64) {
	by := w.actorOf(t)
	if w.limits.isRecent(limitKey{limit, by.command}, time.Now()) {
		return
	}
	e := events.Event{Kind: events.Limit, PID: int(by.pid), UID: by.uid, Command: int(by.command), Reason: limit, Size: int64(maximum)}
	// If there is no room for this event, there is none for events of programs either, and their
	// gap is recorded.
	_ = w.out.Write(&e, false)
}
