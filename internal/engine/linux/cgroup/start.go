package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Start starts a program in the group. The program and everything that it starts are in the group
// from the first instruction on. If a running process were moved instead, the kernel would stop
// every fork on the machine for an RCU grace period, which is a tenth of the boot time.
func (g *Group) Start(cmd *exec.Cmd) error {
	if dir := g.Dirs[unified]; dir != "" {
		return startInto(cmd, dir)
	}
	done := make(chan error)
	go func() { done <- g.startOnThread(cmd) }()
	return <-done
}

// startInto makes the kernel put the new process into a version 2 group.
func startInto(cmd *exec.Cmd, dir string) error {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	defer f.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	return cmd.Start()
}

// checkStartInto checks whether the kernel can start a process in a group and whether a seccomp
// filter permits the call. It starts no process, because the group that it names does not exist.
func checkStartInto() error {
	args := cloneArgs{flags: unix.CLONE_INTO_CGROUP | unix.CLONE_VM | unix.CLONE_VFORK, exitSignal: uint64(unix.SIGCHLD), cgroup: math.MaxInt32}
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if slices.Contains([]unix.Errno{unix.ENOSYS, unix.EINVAL, unix.E2BIG, unix.EPERM}, errno) {
		return fmt.Errorf("cgroup: this kernel cannot start a process in a group of version 2: clone3: %w", errno)
	}
	return nil
}

// cloneArgs is the kernel's struct clone_args of Linux 5.7.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// startOnThread puts only this thread into the version 1 groups; its children inherit them. The
// thread is never unlocked, so it ends with the goroutine and thereby leaves the groups.
func (g *Group) startOnThread(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The first thread of a process never ends and would stay in the groups. While it is locked
		// here, the next goroutine gets another thread.
		defer runtime.UnlockOSThread()
		return g.Start(cmd)
	}
	joined := map[string]bool{} // cpu and cpuacct often share one directory
	for _, dir := range g.Dirs {
		if joined[dir] {
			continue
		}
		joined[dir] = true
		if err := write(filepath.Join(dir, "tasks"), "0"); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	if len(joined) == 0 {
		return errors.New("join cgroup: the group has no directory")
	}
	return cmd.Start()
}
