// Package spawn owns starting programs with few system calls, because each is expensive in a
// sandbox: Go's own way makes one for each signal, and four to learn the result.
package spawn

import (
	"errors"
	"reflect"
	"runtime"
	"slices"
	"syscall"

	"github.com/crannog/crannog/internal/guest/lineage"
)

// ForkExec does what syscall.ForkExec does, with half of its system calls if possible: on an
// architecture with code for it (fork), for attributes that it supports, and under a kernel that
// can reset a child's signal handlers. Otherwise it is syscall.ForkExec. The program has the mark
// from its first instruction on or, after syscall.ForkExec, soon after.
func ForkExec(path string, argv []string, attr *syscall.ProcAttr, mark lineage.Mark) (int, error) {
	if !known(attr) {
		return plainly(path, argv, attr, mark)
	}
	var pin runtime.Pinner
	defer pin.Unpin() // the child has read what it needs, or has failed
	list, err := plan(&pin, path, argv, attr, mark)
	if err != nil {
		return 0, err
	}
	syscall.ForkLock.Lock()
	pid, stopped, err := fork(list)
	syscall.ForkLock.Unlock()
	switch {
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EPERM):
		// The kernel is older than 5.5, or a filter does not know the call.
		return plainly(path, argv, attr, mark)
	case err != nil:
		return 0, err
	case stopped != 0:
		bury(pid)
		return 0, stopped
	}
	return pid, nil
}

// plainly is syscall.ForkExec with a mark.
func plainly(path string, argv []string, attr *syscall.ProcAttr, mark lineage.Mark) (int, error) {
	pid, err := syscall.ForkExec(path, argv, attr)
	if err == nil {
		// It fails for a program that has ended by now.
		_ = mark.Give(pid)
	}
	return pid, err
}

// known reports whether attr requests no more than a plan does.
func known(attr *syscall.ProcAttr) bool {
	if attr.Sys == nil {
		return false
	}
	rest := *attr.Sys
	rest.Setsid, rest.Setctty, rest.Ctty, rest.Credential = false, false, 0, nil
	if c := attr.Sys.Credential; c != nil && c.NoSetGroups {
		return false
	}
	// A descriptor among those that the child gets would be overwritten before its turn.
	low := slices.ContainsFunc(attr.Files, func(fd uintptr) bool { return fd < uintptr(len(attr.Files)) })
	return !low && len(attr.Files) >= 3 && reflect.ValueOf(rest).IsZero()
}

// bury reaps a child that never became the program. Another goroutine that waits for all children
// may have done so.
func bury(pid int) {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
