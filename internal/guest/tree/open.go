package tree

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

var errNotRegular = errors.New("not a regular file")

// openDirectory opens a directory, but not a link to one. gVisor follows a link despite O_NOFOLLOW
// if O_DIRECTORY is set too, so the opened file is compared with the file of that name. Otherwise a
// program could replace a directory by a link and make the guest list other files.
func openDirectory(in int, base string) (int, error) {
	fd, err := unix.Openat(in, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var opened, named unix.Stat_t
	if err = unix.Fstat(fd, &opened); err == nil {
		err = unix.Fstatat(in, base, &named, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil && (opened.Dev != named.Dev || opened.Ino != named.Ino) {
		err = unix.ELOOP
	}
	if err != nil {
		_ = unix.Close(fd) // nothing is written through it
		return -1, err
	}
	return fd, nil
}

// openRegular opens a regular file for reading. It does not open files that block or have side
// effects.
func openRegular(in int, base string) (*os.File, changeset.Entry, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(in, base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, changeset.Entry{}, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, changeset.Entry{}, errNotRegular
	}
	fd, err := unix.Openat(in, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, changeset.Entry{}, err
	}
	f := os.NewFile(uintptr(fd), base)
	if err := unix.Fstat(fd, &stat); err != nil {
		f.Close()
		return nil, changeset.Entry{}, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, changeset.Entry{}, errNotRegular
	}
	return f, changeset.FromStat(&stat), nil
}

// readNames lists a directory, without "." and "..".
func readNames(fd int) ([]string, error) {
	var names []string
	buffer := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOENT) {
			return names, nil // the directory was removed
		}
		if err != nil || n <= 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(buffer[:n], -1, names)
		if len(names) > maxFiles {
			return nil, errors.New("too many files")
		}
	}
}

// openPath keeps the parent directories of the last path open, because the next path usually has
// the same ones.
type openPath struct {
	top  int
	dirs []step
}

type step struct {
	name string
	fd   int
}

func (w *openPath) close() { w.up(0) }

// up closes all open directories except the first n.
func (w *openPath) up(n int) {
	for _, d := range w.dirs[n:] {
		_ = unix.Close(d.fd) // nothing is written through it
	}
	w.dirs = w.dirs[:n]
}

// parent opens the parent directory of a path. It stays open until another path is requested.
func (w *openPath) parent(name string) (fd int, base string, err error) {
	if name == "" || name == ".." || path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, "../") || len(name) > maxPath {
		return -1, "", fmt.Errorf("the path %.80q is not clean", name)
	}
	parts := strings.Split(name, "/")
	above, base := parts[:len(parts)-1], parts[len(parts)-1]
	if len(above) > maxDepth {
		return -1, "", errors.New("directories are nested too deeply")
	}
	n := 0
	for n < len(above) && n < len(w.dirs) && w.dirs[n].name == above[n] {
		n++
	}
	w.up(n)
	fd = w.top
	if n > 0 {
		fd = w.dirs[n-1].fd
	}
	for _, part := range above[n:] {
		sub, err := openDirectory(fd, part)
		if err != nil {
			return -1, "", err
		}
		w.dirs, fd = append(w.dirs, step{part, sub}), sub
	}
	return fd, base, nil
}
