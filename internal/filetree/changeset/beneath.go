package changeset

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// beneath opens a path below a directory of the host. No part of it may be a link: an attacker
// could replace a directory by a link that leads out of the host's directory.
func beneath(dir *os.File, name string, flags int) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if flags&unix.O_PATH == 0 {
		how.Flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), name, how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue // a part of the path was renamed during the call
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// parentOf opens the directory that contains a path.
func parentOf(dir *os.File, name string) (*os.File, string, error) {
	parent, base := path.Split(name)
	if parent == "" {
		parent = "."
	}
	d, err := beneath(dir, path.Clean(parent), unix.O_PATH|unix.O_DIRECTORY)
	return d, base, err
}

// lstatBeneath describes a file below a directory of the host. It returns nil if there is none. A
// path that goes through a link does not count as a file either, because the link may be about to
// become a directory.
func lstatBeneath(dir *os.File, name string) (*Entry, error) {
	d, base, err := parentOf(dir, name)
	if isMissing(err) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return statIfExists(d, base, name)
}

// statIfExists is like lstatAt, but a missing file is not an error.
func statIfExists(d *os.File, base, name string) (*Entry, error) {
	e, err := lstatAt(int(d.Fd()), base)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "lstat", Path: name, Err: err}
	}
	e.Path = name
	return &e, nil
}

// isMissing reports whether an error means that a file does not exist.
func isMissing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}
