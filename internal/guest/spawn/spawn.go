// Package spawn owns how the guest starts a program where each system call is
// dear: Go's own way makes one for each signal, and four to hear how it went.
package spawn

import (
	"errors"
	"reflect"
	"runtime"
	"slices"
	"syscall"
)

// ForkExec does what syscall.ForkExec does, with half of its system calls where
// it can: on a processor for which there is code (fork), for attributes that it
// knows, and under a kernel that forgets a child's signal handlers when asked.
// Otherwise it is syscall.ForkExec.
func ForkExec(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if !known(attr) {
		return syscall.ForkExec(path, argv, attr)
	}
	var pin runtime.Pinner
	defer pin.Unpin() // the child has read what it needs, or has failed
	list, err := plan(&pin, path, argv, attr)
	if err != nil {
		return 0, err
	}
	syscall.ForkLock.Lock()
	pid, stopped, err := fork(list)
	syscall.ForkLock.Unlock()
	switch {
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EPERM):
		// The kernel is older than 5.5, or a filter does not know the call.
		return syscall.ForkExec(path, argv, attr)
	case err != nil:
		return 0, err
	case stopped != 0:
		bury(pid)
		return 0, stopped
	}
	return pid, nil
}

// known reports whether attr asks for no more than a plan does.
func known(attr *syscall.ProcAttr) bool {
	if attr.Sys == nil {
		return false
	}
	rest := *attr.Sys
	rest.Setsid, rest.Setctty, rest.Ctty, rest.Credential, rest.AmbientCaps = false, false, 0, nil, nil
	if c := attr.Sys.Credential; c != nil && (c.NoSetGroups || c.Uid == 0 && len(attr.Sys.AmbientCaps) > 0) {
		return false
	}
	// A descriptor among those that the child gets would be overwritten before
	// its turn.
	low := slices.ContainsFunc(attr.Files, func(fd uintptr) bool { return fd < uintptr(len(attr.Files)) })
	return !low && len(attr.Files) >= 3 && reflect.ValueOf(rest).IsZero()
}

// bury takes the status of a child that never became the program. Whoever
// waits for all children may have taken it.
func bury(pid int) {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
