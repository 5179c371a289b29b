package spawn

import (
	"syscall"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
)

// cloneArgs is what clone3 reads.
type cloneArgs struct {
	flags      uint64
	_          [3]uint64 // where numbers of the child go
	exitSignal uint64
	_          [6]uint64 // a stack and storage of its own, its numbers, its group
}

// fork makes a child that does the steps, and returns when it is the program
// or has failed. The caller holds syscall.ForkLock.
func fork(list []step) (pid int, stopped syscall.Errno, err error) {
	how := &cloneArgs{
		flags:      unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_CLEAR_SIGHAND,
		exitSignal: uint64(syscall.SIGCHLD),
	}
	failed := new(uintptr)
	// A signal for a handler of ours would otherwise run it in the child, on
	// this stack and in this memory.
	beforeFork()
	number, errno := vfork(how, &list[0], len(list), failed)
	afterFork()
	if errno != 0 {
		return 0, 0, syscall.Errno(errno)
	}
	return int(number), syscall.Errno(*failed), nil
}

// vfork makes a child in the caller's memory, which does the steps in their
// order and stops at the first that fails, whose error it leaves in failed. It
// is assembly because the child has the caller's stack, to which nothing may
// be written before it leaves.
func vfork(how *cloneArgs, list *step, n int, failed *uintptr) (pid, errno uintptr)

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()
