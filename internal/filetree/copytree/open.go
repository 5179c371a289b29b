package copytree

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openDir opens the directory base in the directory in, and does not follow a link. Linux ensures
// that with openat2. gVisor has no openat2 and follows a link despite O_NOFOLLOW if O_DIRECTORY is
// set too. There, openDir compares the opened file with the file that has the name.
func openDir(in int, base string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(in, base, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	named, err := statNoFollow(in, base)
	if err != nil {
		return -1, err
	}
	if named.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, unix.ENOTDIR
	}
	if fd, err = unix.Openat(in, base, flags, 0); err != nil {
		return -1, err
	}
	var opened unix.Stat_t
	if err = unix.Fstat(fd, &opened); err == nil && (opened.Dev != named.Dev || opened.Ino != named.Ino) {
		err = unix.ELOOP
	}
	if err != nil {
		_ = unix.Close(fd) // nothing is written through it
		return -1, err
	}
	return fd, nil
}

// openFile opens a regular file for reading. It refuses devices and pipes, which may block or have
// effects when they are opened.
func openFile(in int, base string) (*os.File, *unix.Stat_t, error) {
	stat, err := statNoFollow(in, base)
	if err != nil {
		return nil, nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil, unix.ESTALE
	}
	fd, err := unix.Openat(in, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), base)
	if err = unix.Fstat(fd, stat); err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.ESTALE
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, stat, nil
}

// statNoFollow returns the status of a file by name, without following a link.
func statNoFollow(in int, base string) (*unix.Stat_t, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(in, base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return &stat, err
}

// names lists a directory.
func names(fd int) ([]string, error) {
	// It reads through a second descriptor, because reading moves the offset.
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(again), ".")
	defer f.Close()
	return f.Readdirnames(-1)
}

// removeTree removes a file by name, or a directory with everything below it.
func removeTree(in int, base string) error {
	err := unix.Unlinkat(in, base, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	fd, openErr := openDir(in, base)
	if openErr != nil {
		if errors.Is(openErr, unix.ENOTDIR) {
			return err
		}
		return openErr
	}
	defer unix.Close(fd)
	all, err := names(fd)
	if err != nil {
		return err
	}
	for _, name := range all {
		err = errors.Join(err, removeTree(fd, name))
	}
	if err != nil {
		return err
	}
	return unix.Unlinkat(in, base, unix.AT_REMOVEDIR)
}
