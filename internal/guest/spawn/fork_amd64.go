package spawn

import (
	"syscall"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
)

// cloneArgs is the argument of clone3.
type cloneArgs struct {
	flags      uint64
	_          [3]uint64 // pidfd, child_tid and parent_tid
	exitSignal uint64
	_          [6]uint64 // stack, TLS, PIDs and cgroup
}

// fork starts a child process that executes the steps, and returns when it runs the program or has
// failed. The caller must hold syscall.ForkLock.
func fork(list []step) (pid int, stopped syscall.Errno, err error) {
	how := &cloneArgs{
		flags:      unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_CLEAR_SIGHAND,
		exitSignal: uint64(syscall.SIGCHLD),
	}
	failed := new(uintptr)
	// Otherwise a signal handler could run in the child, which shares this stack and memory.
	beforeFork()
	number, errno := vfork(how, &list[0], len(list), failed)
	afterFork()
	if errno != 0 {
		return 0, 0, syscall.Errno(errno)
	}
	return int(number), syscall.Errno(*failed), nil
}

// vfork starts a child in the caller's memory. The child executes the steps in order, stops at the
// first that fails and stores the error in failed. It is assembly because the child shares the
// caller's stack, to which nothing may be written until the child has left it.
func vfork(how *cloneArgs, list *step, n int, failed *uintptr) (pid, errno uintptr)

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()
