package gvisor

import (
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// This file corrects a difference to Linux, where reading the kernel's attributes of a file
// (security labels, access lists) needs no permission on the file. gVisor requires read permission,
// so ls -l fails for a file that its user may not read.

// kernelAttributes lists the name prefixes of these attributes.
var kernelAttributes = []string{linux.XATTR_SECURITY_PREFIX, linux.XATTR_SYSTEM_PREFIX}

// attributeCalls lists the calls that read an attribute by path. The value is whether the call
// follows a link at the end of the path.
var attributeCalls = map[string]bool{"getxattr": true, "lgetxattr": false}

// allowAttributes wraps these calls in the kernel's system call tables.
func allowAttributes() {
	replaceCalls(func(name string, present sentry.SyscallFn) sentry.SyscallFn {
		follow, ok := attributeCalls[name]
		if !ok {
			return nil
		}
		return withoutReadPermission(present, follow)
	})
}

// withoutReadPermission wraps a call. It returns "no such attribute" if the task may look up the
// file but not read it. A file with an access list then appears to have none.
func withoutReadPermission(original sentry.SyscallFn, follow bool) sentry.SyscallFn {
	return func(t *sentry.Task, number uintptr, args arch.SyscallArguments) (uintptr, *sentry.SyscallControl, error) {
		value, control, err := original(t, number, args)
		if !linuxerr.Equals(linuxerr.EACCES, err) {
			return value, control, err
		}
		name, nameErr := t.CopyInString(args[1].Pointer(), linux.XATTR_NAME_MAX+1)
		if nameErr != nil || !isKernelAttribute(name) || !mayLookUp(t, args, follow) {
			return value, control, err
		}
		return 0, nil, linuxerr.ENODATA
	}
}

// isKernelAttribute reports whether an attribute is one of the kernel's.
func isKernelAttribute(attribute string) bool {
	for _, prefix := range kernelAttributes {
		if strings.HasPrefix(attribute, prefix) {
			return true
		}
	}
	return false
}

// mayLookUp reports whether the task may look up the file in its arguments.
func mayLookUp(t *sentry.Task, args arch.SyscallArguments, follow bool) bool {
	path, err := t.CopyInString(args[0].Pointer(), linux.PATH_MAX)
	if err != nil {
		return false
	}
	root := t.FSContext().RootDirectory()
	defer root.DecRef(t)
	from := root
	parsed := fspath.Parse(path)
	if !parsed.Absolute {
		from = t.FSContext().WorkingDirectory()
		defer from.DecRef(t)
	}
	_, err = t.Kernel().VFS().StatAt(t, t.Credentials(), &vfs.PathOperation{
		Root: root, Start: from, Path: parsed, FollowFinalSymlink: follow,
	}, &vfs.StatOptions{Mask: linux.STATX_TYPE})
	return err == nil
}
