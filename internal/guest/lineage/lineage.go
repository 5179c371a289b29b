// Package lineage owns the marks by which the guest finds all processes that descend from a process
// that it started.
//
// Neither process groups nor parents are enough: setsid leaves a group, and after a double fork the
// guest is the parent. The mark is the resource limit RLIMIT_LOCKS, which Linux has not enforced
// since 2.4. Child processes inherit it, exec preserves it, and it is not in the environment, which
// programs may change. The kernel of a sandbox lets a process set it only once, so that no program
// inside can leave its command's family.
package lineage

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// base is added to each mark, so that programs that read the limit see a large number of locks.
const base = 1 << 40

// Mark identifies a family. Processes without a family have None.
type Mark uint64

// None means that there is no mark.
const None Mark = 0

// first is where the numbers of this guest's marks start. It is random, so that two guests on one
// kernel, such as those of two tests, do not signal each other's processes.
var first = rand.Uint64N(base)

// last is the number of the last mark, counted from first.
var last atomic.Uint64

// New returns a new mark, or None if the kernel does not support marks.
func New() Mark {
	if !supported() {
		return None
	}
	return Mark(base + first + last.Add(1))
}

// supported reports whether the kernel supports marks. An unmodified gVisor does not allow setting
// this limit, even to its current value.
var supported = sync.OnceValue(func() bool {
	var now unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &now); err != nil {
		return false
	}
	return unix.Prlimit(0, unix.RLIMIT_LOCKS, &now, nil) == nil && now.Max > base
})

// Limit returns the value of the resource limit (prlimit(2), Resource) that represents the mark.
func (m Mark) Limit() unix.Rlimit { return unix.Rlimit{Cur: uint64(m), Max: uint64(m)} }

// Resource is the resource limit that represents the mark.
const Resource = unix.RLIMIT_LOCKS

// Set marks a process that was just started and has no child processes yet.
func (m Mark) Set(pid int) error {
	if m == None {
		return nil
	}
	limit := m.Limit()
	return unix.Prlimit(pid, Resource, &limit, nil)
}

// Of returns the mark of a process, or None if it has none or has ended.
func Of(pid int) Mark {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, Resource, nil, &limit); err != nil || limit.Cur <= base || limit.Cur == unix.RLIM_INFINITY {
		return None
	}
	return Mark(limit.Cur)
}

// Has reports whether a process has the mark.
func (m Mark) Has(pid int) bool { return m != None && Of(pid) == m }
