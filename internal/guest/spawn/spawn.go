// Package spawn owns starting programs with few system calls, because each is expensive in a
// sandbox. Go's standard library makes one for each signal and four to get the result.
package spawn

import (
	"errors"
	"reflect"
	"runtime"
	"slices"
	"syscall"

	"github.com/crannog/crannog/internal/guest/lineage"
)

// ForkExec is like syscall.ForkExec, but with half of its system calls. This needs an
// architecture with code for it (fork), supported attributes, and a kernel that can reset a child's
// signal handlers. Otherwise it calls syscall.ForkExec. The program has the mark from its
// first instruction on, or soon after its start with syscall.ForkExec.
func ForkExec(path string, argv []string, attr *syscall.ProcAttr, mark lineage.Mark) (int, error) {
	if !supported(attr) {
		return forkExecStd(path, argv, attr, mark)
	}
	var pin runtime.Pinner
	defer pin.Unpin() // the child does not read it any more
	list, err := plan(&pin, path, argv, attr, mark)
	if err != nil {
		return 0, err
	}
	syscall.ForkLock.Lock()
	pid, stopped, err := fork(list)
	syscall.ForkLock.Unlock()
	switch {
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EPERM):
		// The kernel is older than 5.5, or a seccomp filter rejects the call.
		return forkExecStd(path, argv, attr, mark)
	case err != nil:
		return 0, err
	case stopped != 0:
		reapFailed(pid)
		return 0, stopped
	}
	return pid, nil
}

// forkExecStd calls syscall.ForkExec and then sets the mark.
func forkExecStd(path string, argv []string, attr *syscall.ProcAttr, mark lineage.Mark) (int, error) {
	pid, err := syscall.ForkExec(path, argv, attr)
	if err == nil {
		// An error means that the program has already ended.
		_ = mark.Set(pid)
	}
	return pid, err
}

// supported reports whether plan supports attr.
func supported(attr *syscall.ProcAttr) bool {
	if attr.Sys == nil {
		return false
	}
	rest := *attr.Sys
	rest.Setsid, rest.Setctty, rest.Ctty, rest.Credential = false, false, 0, nil
	if c := attr.Sys.Credential; c != nil && c.NoSetGroups {
		return false
	}
	// A source descriptor within the target range would be overwritten before it is duplicated.
	low := slices.ContainsFunc(attr.Files, func(fd uintptr) bool { return fd < uintptr(len(attr.Files)) })
	return !low && len(attr.Files) >= 3 && reflect.ValueOf(rest).IsZero()
}

// reapFailed reaps a child that did not become the program. A goroutine that waits for all children
// may have reaped it already.
func reapFailed(pid int) {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
