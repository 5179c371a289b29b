package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/landlock"
)

// firstUser is the lowest ID of the users as which a server of root runs its machines. The ID of a
// keeper's process is added to it, so that no two machines of a host have the same user: they could
// signal or trace each other. No system assigns such high IDs to users.
const firstUser = 0x70000000

// readable lists the directories and files of the host that a machine's program reads: itself, its
// libraries and its firmware. Those that a host does not have are skipped.
var readable = []string{"/usr", "/lib", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/ld.so.preload", "/dev/null", "/dev/urandom"}

// device is the processor's virtualization.
const device = "/dev/kvm"

// startOnThread calls startConfined on a thread that lives as long as this process: the program ends
// with the thread that started it.
func startOnThread(cmd *exec.Cmd, emulated bool, files ...*os.File) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- startConfined(cmd, emulated, files...)
		select {}
	}()
	return <-result
}

// startConfined starts the machine's program with few rights. A program in the machine that takes it
// over shall reach nothing of the host: no network, no other process, no right of the server's user,
// and no file but the given ones and the program's own. If this process is not root, the program keeps
// its user and its namespaces, and only Landlock and the program's own filter of system calls
// (vmm.QEMU) restrict it.
//
// The program inherits the restrictions of the thread that starts it, which must be locked to its
// goroutine. The other threads of the keeper are not restricted.
func startConfined(cmd *exec.Cmd, emulated bool, files ...*os.File) error {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		groups, err := deviceGroups(emulated)
		if err != nil {
			return err
		}
		user := uint32(firstUser + os.Getpid())
		attr.Credential = &syscall.Credential{Uid: user, Gid: user, Groups: groups}
		// Without root, these need a user namespace. Its maps are written by this thread, which may
		// not open them any more.
		attr.Cloneflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID
	}
	cmd.SysProcAttr = attr
	// The machine's memory belongs into no core dump.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := restrictFiles(filepath.Dir(cmd.Path), emulated, files); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return cmd.Start()
}

// deviceGroups returns the group that may open the processor's virtualization.
func deviceGroups(emulated bool) ([]uint32, error) {
	if emulated {
		return nil, nil
	}
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil {
		return nil, &os.PathError{Op: "stat", Path: device, Err: err}
	}
	const all, group = 0o006, 0o060
	switch {
	case stat.Mode&all == all:
		return nil, nil
	case stat.Mode&group == group && stat.Gid != 0:
		return []uint32{stat.Gid}, nil
	}
	return nil, fmt.Errorf("only root may open %s, and machines do not run as root: chgrp kvm %s; chmod 660 %s", device, device, device)
}

// restrictFiles makes Landlock refuse this thread, and what it starts, all files but the given ones
// and those that the program needs. On a kernel without Landlock, the other layers remain.
func restrictFiles(programDir string, emulated bool, files []*os.File) error {
	version, err := landlock.Version()
	if err != nil || version == 0 {
		return err
	}
	var network uint64
	if version >= landlock.BindTCP {
		network = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	ruleset, err := landlock.New(landlock.Files(version), network)
	if err != nil {
		return err
	}
	defer ruleset.Close()
	const read = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	for _, path := range append([]string{programDir}, readable...) {
		rights := uint64(read)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.IsDir() {
			rights |= unix.LANDLOCK_ACCESS_FS_READ_DIR
		}
		if path == os.DevNull {
			rights |= unix.LANDLOCK_ACCESS_FS_WRITE_FILE
		}
		if err == nil {
			err = ruleset.Allow(path, rights)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := ruleset.AllowFile(f, unix.LANDLOCK_ACCESS_FS_READ_FILE); err != nil {
			return err
		}
	}
	if !emulated {
		rights := unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | landlock.Files(version)&unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
		if err := ruleset.Allow(device, rights); err != nil {
			return err
		}
	}
	return ruleset.Restrict(func(trap, a, b, c uintptr) error {
		if _, _, errno := unix.Syscall(trap, a, b, c); errno != 0 {
			return errno
		}
		return nil
	})
}
