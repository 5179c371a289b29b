package enginetest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// probesByPath holds attempts to reach a file or a socket by its path on the host. Each of them
// succeeds on the host, and in the sandbox with a file of the sandbox.
var probesByPath = map[string]func(path string) error{
	"open":            readOrConnect,
	"dots":            func(path string) error { return readOrConnect("/../../../../.." + path) },
	"own-root":        func(path string) error { return readOrConnect("/proc/self/root" + path) },
	"own-directory":   func(path string) error { return readOrConnect("/proc/self/cwd/../../../../../../../.." + path) },
	"init-root":       func(path string) error { return readOrConnect(initFile("root") + path) },
	"init-directory":  func(path string) error { return readOrConnect(initFile("cwd/../../../../../../../..") + path) },
	"any-root":        func(path string) error { return readBelow("root", path) },
	"any-directory":   func(path string) error { return readBelow("cwd", "/../../../../../../../.."+path) },
	"any-descriptor":  throughAnyDescriptor,
	"descriptor":      throughDescriptor,
	"link":            func(path string) error { return throughLink(path, path) },
	"link-up":         func(path string) error { return throughLink("../../../../../../.."+path, path) },
	"link-to-init":    func(path string) error { return throughLink(initFile("root")+path, path) },
	"hard-link":       throughHardLink,
	"hard-link-of-fd": throughLinkOfDescriptor,
	"rename":          throughRename,
	"bind":            throughBind,
	"chroot":          throughChroot,
	"memory-file":     throughMemoryFile,
}

// expensiveProbes lists the probes that start programs or threads, or move files. They are tried
// only on the first expensivePaths paths.
var expensiveProbes = []string{"chroot", "memory-file", "rename"}

const expensivePaths = 4

// readOrConnect reads a byte of a file, or connects to a socket.
func readOrConnect(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket != 0 {
		// The path may be longer than a socket address allows.
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		conn, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.ReadFull(f, make([]byte, 1))
	return err
}

// readBelow tries the path below the directories that /proc shows for each process, such as its
// root.
func readBelow(pattern, path string) error {
	lastErr := error(unix.ENOENT)
	for _, process := range glob("/proc/[0-9]*") {
		for _, at := range glob(filepath.Join(process, pattern)) {
			if lastErr = readOrConnect(at + path); lastErr == nil {
				return nil
			}
		}
	}
	return lastErr
}

// throughAnyDescriptor goes up from every directory that a process has open. It opens a directory
// itself, so that there is at least one.
func throughAnyDescriptor(path string) error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	defer root.Close()
	return readBelow("fd/*", "/../../../../../../../.."+path)
}

// throughDescriptor goes up from a descriptor without read permission, and opens the file behind a
// descriptor again.
func throughDescriptor(path string) error {
	root, err := unix.Open("/proc/self", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	fd, err := unix.Openat(root, "../../../../../.."+path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return readOrConnect(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// withNewName runs an attempt with a new name in a directory that is removed afterwards. If
// possible, the name is on the same file system as path.
func withNewName(path string, try func(name string) error) error {
	parent := "/tmp"
	if _, err := os.Stat(path); err == nil {
		parent = filepath.Dir(path) // only on the host, or with a file of the sandbox
	}
	dir, err := os.MkdirTemp(parent, "crannog-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return try(filepath.Join(dir, "name"))
}

// throughLink reaches the file through a symbolic link.
func throughLink(target, path string) error {
	return withNewName(path, func(name string) error {
		if err := os.Symlink(target, name); err != nil {
			return err
		}
		return readOrConnect(name)
	})
}

// throughHardLink reaches the file through a hard link.
func throughHardLink(path string) error {
	return withNewName(path, func(name string) error {
		if err := unix.Link(path, name); err != nil {
			return err
		}
		return readOrConnect(name)
	})
}

// throughLinkOfDescriptor gives the file behind a descriptor another name.
func throughLinkOfDescriptor(path string) error {
	return withNewName(path, func(name string) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		return readOrConnect(name)
	})
}

// throughRename moves the file to another directory, and back.
func throughRename(path string) error {
	return withNewName(path, func(name string) error {
		if err := os.Rename(path, name); err != nil {
			return err
		}
		return errors.Join(readOrConnect(name), os.Rename(name, path))
	})
}

// throughBind mounts the file's directory at another path.
func throughBind(path string) error {
	return withMountPoint(func(dir string) error {
		if err := unix.Mount(filepath.Dir(path), dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		return readOrConnect(filepath.Join(dir, filepath.Base(path)))
	})()
}

// throughChroot calls chroot on a directory and leaves it: on a shared kernel, a chroot without a
// change of the working directory is no boundary.
func throughChroot(path string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("cannot prepare a thread: %v", err)
	}
	jail, err := os.MkdirTemp("/tmp", "crannog-jail-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(jail) // after the steps below, the path is valid again
	if err := os.Mkdir(filepath.Join(jail, "deeper"), 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.Chroot(jail) },
		func() error { return unix.Chdir("/") },
		func() error { return unix.Chroot("deeper") },
		// Two levels up, because the directory is two levels deep. On gVisor, ".." of the root is
		// the root.
		func() error { return unix.Chdir("../..") },
		func() error { return unix.Chroot(".") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return readOrConnect(path)
}

// throughMemoryFile reads the file with a program that exists only in memory, not in a file system.
func throughMemoryFile(path string) error {
	program, err := os.ReadFile("/usr/bin/head")
	if err != nil {
		return fmt.Errorf("cannot read the program for the attempt: %v", err)
	}
	fd, err := unix.MemfdCreate("crannog-probe", 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "memory")
	defer f.Close()
	if _, err := f.Write(program); err != nil {
		return err
	}
	out, err := exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd), "-c1", path).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() && len(out) == 0 {
		return unix.ENOENT // the program prints the same error
	}
	if err == nil && len(out) == 0 {
		return errors.New("the program printed nothing")
	}
	return err
}
