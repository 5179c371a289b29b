// Package give owns creating files and directories where the sandbox's user may not: root creates
// them and gives them to the user.
//
// A caller of the API may act as root as well, so this adds convenience, not rights. A program
// inside must not profit from it: it could leave a link, or another user's file, at a path that a
// caller is about to write. So no link is followed, and nothing that exists is changed.
package give

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/identity"
)

// Possible reports whether root may create for u what failed with err: u lacked the rights, and
// neither the policy nor the guest's own user prevents root from helping.
func Possible(a identity.Actor, accounts identity.Accounts, u identity.User, err error) bool {
	return a.Switch && u.UID != 0 && !accounts.NoRoot && errors.Is(err, fs.ErrPermission)
}

// Dirs creates a directory and those above it, and gives the new ones to u.
func Dirs(u identity.User, path string) error {
	dir, err := walk(u, path)
	if err != nil {
		return err
	}
	return dir.Close()
}

// File creates an empty file and the directories above it, gives them to u, and returns the file
// open for writing. The error is fs.ErrExist if the file exists.
func File(u identity.User, path string) (*os.File, error) {
	dir, err := walk(u, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(path), flags, 0o666)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := f.Chown(int(u.UID), int(u.GID)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// walk opens a directory and creates its missing parts.
func walk(u identity.User, path string) (*os.File, error) {
	fd, err := unix.Open("/", openDir, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	dir := os.NewFile(uintptr(fd), "/")
	for name := range strings.SplitSeq(strings.Trim(filepath.Clean(path), "/"), "/") {
		if name == "" {
			continue
		}
		next, err := step(u, dir, name)
		_ = dir.Close() // used only for lookups
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// openDir does not use O_DIRECTORY, because gVisor follows a link at the end of the path when both
// it and O_NOFOLLOW are given. It checks the opened file instead.
const openDir = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// step opens a directory in dir, and creates it if it is missing.
func step(u identity.User, dir *os.File, name string) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name, openDir, 0)
	made := false
	if errors.Is(err, unix.ENOENT) {
		err = unix.Mkdirat(int(dir.Fd()), name, 0o755)
		made = err == nil
		if err == nil || errors.Is(err, unix.EEXIST) {
			fd, err = unix.Openat(int(dir.Fd()), name, openDir, 0)
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	next := os.NewFile(uintptr(fd), path)
	err = check(next)
	if err == nil && made {
		err = hand(u, next)
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// check rejects everything but a directory, such as a link to one.
func check(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return &fs.PathError{Op: "follow link", Path: f.Name(), Err: syscall.EACCES}
	case !info.IsDir():
		return &fs.PathError{Op: "open", Path: f.Name(), Err: syscall.ENOTDIR}
	}
	return nil
}

// hand gives a directory that was just created to u. If u may write above it, u can have replaced
// it by now: one that does not belong to root, or is not empty, is not the created one any more.
func hand(u identity.User, made *os.File) error {
	fd, err := unix.Openat(int(made.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: made.Name(), Err: err}
	}
	dir := os.NewFile(uintptr(fd), made.Name())
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if _, err := dir.Readdirnames(1); info.Sys().(*syscall.Stat_t).Uid != 0 || !errors.Is(err, io.EOF) {
		return &fs.PathError{Op: "chown", Path: made.Name(), Err: syscall.EACCES}
	}
	return dir.Chown(int(u.UID), int(u.GID))
}
