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

// probesByPath are attempts to reach a file or a socket by its path on the host. Each of them
// succeeds on the host, and in the sandbox with a file of the sandbox.
var probesByPath = map[string]func(path string) error{
	"open":            take,
	"dots":            func(path string) error { return take("/../../../../.." + path) },
	"own-root":        func(path string) error { return take("/proc/self/root" + path) },
	"own-directory":   func(path string) error { return take("/proc/self/cwd/../../../../../../../.." + path) },
	"init-root":       func(path string) error { return take(initFile("root") + path) },
	"init-directory":  func(path string) error { return take(initFile("cwd/../../../../../../../..") + path) },
	"any-root":        func(path string) error { return takeBelow("root", path) },
	"any-directory":   func(path string) error { return takeBelow("cwd", "/../../../../../../../.."+path) },
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

// sparing ways start programs or threads, or move files, and are tried on the first few paths only.
var sparing = []string{"chroot", "memory-file", "rename"}

const sparingPaths = 4

// take reads a byte of a file, or connects to a socket.
func take(path string) error {
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

// takeBelow tries the path below the directories that /proc shows for each process, such as its
// root.
func takeBelow(pattern, path string) error {
	last := error(unix.ENOENT)
	for _, process := range glob("/proc/[0-9]*") {
		for _, at := range glob(filepath.Join(process, pattern)) {
			if last = take(at + path); last == nil {
				return nil
			}
		}
	}
	return last
}

// throughAnyDescriptor goes up from every directory that a process has open. It opens one itself,
// so that there is at least one.
func throughAnyDescriptor(path string) error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	defer root.Close()
	return takeBelow("fd/*", "/../../../../../../../.."+path)
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
	return take(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// scratch gives an attempt a name in a directory that is removed afterwards. The name is on the
// same file system as the path beside.
func scratch(beside string, try func(name string) error) error {
	parent := "/tmp"
	if _, err := os.Stat(beside); err == nil {
		parent = filepath.Dir(beside) // only on the host, or with a file of the sandbox
	}
	dir, err := os.MkdirTemp(parent, "crannog-way-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return try(filepath.Join(dir, "name"))
}

func throughLink(target, path string) error {
	return scratch(path, func(name string) error {
		if err := os.Symlink(target, name); err != nil {
			return err
		}
		return take(name)
	})
}

func throughHardLink(path string) error {
	return scratch(path, func(name string) error {
		if err := unix.Link(path, name); err != nil {
			return err
		}
		return take(name)
	})
}

// throughLinkOfDescriptor gives the file behind a descriptor another name.
func throughLinkOfDescriptor(path string) error {
	return scratch(path, func(name string) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		return take(name)
	})
}

// throughRename moves the file to a readable place, and back.
func throughRename(path string) error {
	return scratch(path, func(name string) error {
		if err := os.Rename(path, name); err != nil {
			return err
		}
		return errors.Join(take(name), os.Rename(name, path))
	})
}

// throughBind mounts the file's directory at another place.
func throughBind(path string) error {
	return onScratch(func(dir string) error {
		if err := unix.Mount(filepath.Dir(path), dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		return take(filepath.Join(dir, filepath.Base(path)))
	})()
}

// throughChroot calls chroot on a directory and leaves it: on a shared kernel, a chroot without a
// change of the working directory is no boundary.
func throughChroot(path string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("a thread cannot be readied: %v", err)
	}
	jail, err := os.MkdirTemp("/tmp", "crannog-jail-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(jail) // a path from the root, which is reached again
	if err := os.Mkdir(filepath.Join(jail, "deeper"), 0o755); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.Chroot(jail) },
		func() error { return unix.Chdir("/") },
		func() error { return unix.Chroot("deeper") },
		func() error { return unix.Chdir("../..") }, // as many levels as the jail is deep; on gVisor, ".." of the root continues at the top
		func() error { return unix.Chroot(".") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return take(path)
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
		return errors.New("it is empty")
	}
	return err
}
