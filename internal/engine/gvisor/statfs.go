package gvisor

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// For a host directory that is mounted directly, such as one that the policy makes read-only,
// statfs would return the host's live counts of blocks and files. They reveal to programs in the
// sandbox the size of the host's disk, how full it is and, over time, what others on the machine
// do. Two sandboxes could also communicate through them. Therefore such a mount shows the counts of
// the sandbox's own disk.

// concealDisks replaces the calls that report about file systems.
func concealDisks() {
	calls := map[string]sentry.SyscallFn{"statfs": statfs, "fstatfs": fstatfs}
	replaceCalls(func(name string, _ sentry.SyscallFn) sentry.SyscallFn { return calls[name] })
}

// statfs implements statfs(2). It does not read its result back from the program's memory, because
// the program could change it there.
func statfs(t *sentry.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
	name, err := t.CopyInString(args[0].Pointer(), linux.PATH_MAX)
	if err != nil {
		return 0, nil, err
	}
	if name == "" {
		return 0, nil, linuxerr.ENOENT
	}
	path := fspath.Parse(name)
	root := t.FSContext().RootDirectory()
	if !root.Ok() {
		return 0, nil, linuxerr.ENOENT
	}
	defer root.DecRef(t)
	start := root
	if !path.Absolute {
		start = t.FSContext().WorkingDirectory()
		defer start.DecRef(t)
	}
	return reportDisk(t, args, &vfs.PathOperation{Root: root, Start: start, Path: path, FollowFinalSymlink: true})
}

// fstatfs implements fstatfs(2).
func fstatfs(t *sentry.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
	file := t.GetFile(args[0].Int())
	if file == nil {
		return 0, nil, linuxerr.EBADF
	}
	defer file.DecRef(t)
	root := t.FSContext().RootDirectory()
	if !root.Ok() {
		return 0, nil, linuxerr.ENOENT
	}
	defer root.DecRef(t)
	return reportDisk(t, args, &vfs.PathOperation{Root: root, Start: file.VirtualDentry()})
}

// reportDisk writes the result for the file system at a path.
func reportDisk(t *sentry.Task, args arch.SyscallArguments, op *vfs.PathOperation) (uintptr, *sentry.SyscallControl, error) {
	found, err := t.Kernel().VFS().StatFSAt(t, t.Credentials(), op)
	if err != nil {
		return 0, nil, err
	}
	if found.Type == linux.V9FS_MAGIC {
		found = concealed(found, ownDisk(t))
	}
	_, err = found.CopyOut(t, args[1].Pointer())
	return 0, nil, err
}

// ownDisk returns the description of the sandbox's disk, which is the root of the first process. It
// is empty if the disk cannot be determined.
func ownDisk(t *sentry.Task) linux.Statfs {
	init := t.Kernel().GlobalInit()
	if init == nil || init.Leader() == nil {
		return linux.Statfs{}
	}
	namespace := init.Leader().GetMountNamespace()
	if namespace == nil {
		return linux.Statfs{}
	}
	defer namespace.DecRef(t)
	root := namespace.Root(t)
	defer root.DecRef(t)
	creds := auth.NewRootCredentials(t.Kernel().RootUserNamespace())
	own, err := t.Kernel().VFS().StatFSAt(t, creds, &vfs.PathOperation{Root: root, Start: root})
	if err != nil || own.Type == linux.V9FS_MAGIC {
		return linux.Statfs{}
	}
	return own
}

// concealed returns the description of a host file system with the counts of the sandbox's own
// disk.
func concealed(host, own linux.Statfs) linux.Statfs {
	own.Type, own.NameLength, own.Flags = host.Type, host.NameLength, host.Flags
	if own.BlockSize == 0 {
		own.BlockSize, own.FragmentSize = usualBlockSize, usualBlockSize
	}
	return own
}

// usualBlockSize is the usual size of a block.
const usualBlockSize = 4096
