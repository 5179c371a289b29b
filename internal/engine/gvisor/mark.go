package gvisor

import (
	"encoding/binary"
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/limits"
)

// When a command is ended, the guest must find all of its processes, including a process that has
// created its own session and whose parent has ended. Therefore the guest marks the first process
// of each command with a resource limit that is not enforced and that children inherit (package
// lineage).
//
// gVisor lets no program set that limit. Our kernel lets a process without a mark set one, once. A
// program that could change its mark would keep running when its command is
// ended.

// allowMarks makes prlimit64 of our kernel accept marks.
func allowMarks() {
	replaceCalls(func(name string, present sentry.SyscallFn) sentry.SyscallFn {
		if name != "prlimit64" {
			return nil
		}
		return withMarks(present)
	})
}

// withMarks wraps prlimit64. It handles the limit that holds the mark, and passes all others to
// gVisor's function.
func withMarks(original sentry.SyscallFn) sentry.SyscallFn {
	return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
		if args[1].Int() != linux.RLIMIT_LOCKS {
			return original(t, number, args)
		}
		isInit := t.ThreadGroup() == t.Kernel().GlobalInit()
		if args[2].Pointer() == 0 && !isInit {
			return original(t, number, args) // this only reads the limit
		}
		return 0, nil, mark(t, isInit, args)
	}
}

// marking is locked while a mark is set, so that concurrent calls cannot both set one.
var marking sync.Mutex

// mark reads the mark of a process, and sets it if the process has none. A process may mark itself,
// and the kernel's init process may mark all others.
func mark(t *sentry.Task, isInit bool, args arch.SyscallArguments) error {
	target := t
	if pid := sentry.ThreadID(args[0].Int()); pid < 0 {
		return linuxerr.EINVAL
	} else if pid > 0 {
		if target = t.PIDNamespace().TaskWithID(pid); target == nil {
			return linuxerr.ESRCH
		}
	}
	if !isInit && target.ThreadGroup() != t.ThreadGroup() {
		return linuxerr.EPERM
	}
	old, err := setMark(t, target.ThreadGroup().Limits(), args[2].Pointer())
	if err != nil || args[3].Pointer() == 0 {
		return err
	}
	var out [16]byte
	binary.NativeEndian.PutUint64(out[:], old.Cur)
	binary.NativeEndian.PutUint64(out[8:], old.Max)
	_, err = t.CopyOutBytes(args[3].Pointer(), out[:])
	return err
}

// setMark sets the mark that is stored at an address, unless the address is zero, and returns the
// previous mark.
func setMark(t *sentry.Task, set *limits.LimitSet, at hostarch.Addr) (limits.Limit, error) {
	if at == 0 {
		return set.Get(limits.Locks), nil
	}
	var in [16]byte
	if _, err := t.CopyInBytes(at, in[:]); err != nil {
		return limits.Limit{}, err
	}
	return setMarkOnce(set, limits.Limit{Cur: binary.NativeEndian.Uint64(in[:]), Max: binary.NativeEndian.Uint64(in[8:])})
}

// setMarkOnce sets the mark if the process has none, and returns the previous mark. It refuses to
// replace a mark by another one.
func setMarkOnce(set *limits.LimitSet, to limits.Limit) (limits.Limit, error) {
	marking.Lock()
	defer marking.Unlock()
	old := set.Get(limits.Locks)
	switch {
	case to.Cur > to.Max:
		return old, linuxerr.EINVAL
	case to == old:
	case old.Cur != limits.Infinity || old.Max != limits.Infinity:
		return old, linuxerr.EPERM
	default:
		set.SetUnchecked(limits.Locks, to)
	}
	return old, nil
}
