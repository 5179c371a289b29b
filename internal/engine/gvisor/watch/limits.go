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

// fill are the calls that may find the disk full, with the number of bytes that each requests.
var fill = map[string]func(arch.SyscallArguments) uint64{
	"write": third, "pwrite64": third, "writev": little, "pwritev": little, "pwritev2": little,
	"sendfile": little, "splice": little, "copy_file_range": little, "fallocate": fourth,
	"open": little, "openat": little, "openat2": little, "creat": little, "mkdir": little, "mkdirat": little,
	"mknod": little, "mknodat": little, "symlink": little, "symlinkat": little, "link": little, "linkat": little,
	"rename": little, "renameat": little, "renameat2": little,
}

func little(arch.SyscallArguments) uint64   { return 0 }
func third(a arch.SyscallArguments) uint64  { return a[2].Uint64() }
func fourth(a arch.SyscallArguments) uint64 { return a[3].Uint64() }

// multiply are the calls that create processes.
var multiply = map[string]bool{"clone": true, "clone3": true, "fork": true, "vfork": true}

// bound wraps a system call, so that the watcher learns when a limit is reached. It adds one
// comparison to a successful call.
func bound(name string, fn sentry.SyscallFn) (sentry.SyscallFn, bool) {
	asks, fills := fill[name]
	switch {
	case fills:
		return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
			value, control, err := fn(t, number, args)
			if err != nil && linuxerr.Equals(linuxerr.ENOSPC, err) {
				if w := current.Load(); w != nil {
					w.full(t, asks(args))
				}
			}
			return value, control, err
		}, true
	case multiply[name]:
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

// full checks whether the sandbox's disk is full. A program can also fill a tmpfs, which it may
// have mounted with a small size.
func (w *watcher) full(t *sentry.Task, asked uint64) {
	k := t.Kernel()
	p := w.where(k)
	if p == nil {
		return
	}
	disk, err := k.VFS().StatFSAt(t, root(k), operation(p.root, "/"))
	if err != nil {
		return
	}
	free := disk.BlocksAvailable
	switch {
	case disk.Files > 0 && disk.FilesFree == 0:
		w.reachedLimit(t, events.LimitInodes, disk.Files)
	case free <= slack || asked/hostarch.PageSize >= free:
		w.reachedLimit(t, events.LimitDisk, disk.Blocks*uint64(disk.BlockSize))
	}
}

// checkProcessLimit checks whether the sandbox's limit of processes was reached. A program can set
// a lower limit for itself.
func (w *watcher) checkProcessLimit(t *sentry.Task) {
	own := t.ThreadGroup().Limits().Get(limits.ProcessCount).Cur
	boxes := t.Kernel().GlobalInit().Limits().Get(limits.ProcessCount).Cur
	if own >= boxes && boxes != linux.RLimInfinity {
		w.reachedLimit(t, events.LimitPIDs, boxes)
	}
}

// limitEventInterval is the interval at which one command can have an event about one limit,
// because a program may retry often.
const limitEventInterval = time.Minute

// maxLimitTimes bounds the number of entries of limitTimes. When it is reached, all entries are dropped.
const maxLimitTimes = 256

// limitTimes records when each command last reached each limit.
type limitTimes struct {
	mu   sync.Mutex
	last map[meeting]time.Time
}

type meeting struct {
	limit   string
	command int32
}

// again reports whether an event was written for this pair within limitEventInterval.
func (m *limitTimes) again(one meeting, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last, ok := m.last[one]; ok && now.Sub(last) < limitEventInterval {
		return true
	}
	if m.last == nil || len(m.last) >= maxLimitTimes {
		m.last = map[meeting]time.Time{}
	}
	m.last[one] = now
	return false
}

func (w *watcher) reachedLimit(t *sentry.Task, limit string, maximum uint64) {
	by := w.actorOf(t)
	if w.limits.again(meeting{limit, by.command}, time.Now()) {
		return
	}
	e := events.Event{Kind: events.Limit, PID: int(by.pid), UID: by.uid, Command: int(by.command), Reason: limit, Size: int64(maximum)}
	// If there is no room for this event, there is none for events of programs either, and their
	// gap is recorded.
	_ = w.out.Write(&e, false)
}
