// Package give owns creating files and directories where the sandbox's user may not: root creates
// them and changes their owner to the user.
//
// A caller of the API may act as root anyway, so this is only a convenience and grants no new
// rights. A program inside must not gain rights from it. It could place a symbolic link, or another
// user's file, at a path that a caller is about to write. So the package follows no link and
// changes nothing that exists.
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

// Possible reports whether root may repeat an operation that failed with err for u: u lacked the
// rights, and neither the policy nor the guest's own user prevents root from acting.
func Possible(a identity.Actor, accounts identity.Accounts, u identity.User, err error) bool {
	return a.Switch && u.UID != 0 && !accounts.NoRoot && errors.Is(err, fs.ErrPermission)
}

// Dirs creates a directory and its missing parents, and makes u their owner.
func Dirs(u identity.User, path string) error {
	dir, err := walk(u, path)
	if err != nil {
		return err
	}
	return dir.Close()
}

// File creates an empty file and its missing parent directories, makes u their owner, and returns
// the file open for writing. The error is fs.ErrExist if the file exists.
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

// walk opens a directory and creates missing elements of its path.
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

// openDir has no O_DIRECTORY, because gVisor follows a link at the end of the path if both
// O_DIRECTORY and O_NOFOLLOW are set. The opened file is checked instead.
const openDir = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// step opens the directory name in dir, and creates it if it is missing.
func step(u identity.User, dir *os.File, name string) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name, openDir, 0)
	created := false
	if errors.Is(err, unix.ENOENT) {
		err = unix.Mkdirat(int(dir.Fd()), name, 0o755)
		created = err == nil
		if err == nil || errors.Is(err, unix.EEXIST) {
			fd, err = unix.Openat(int(dir.Fd()), name, openDir, 0)
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	next := os.NewFile(uintptr(fd), path)
	err = checkDir(next)
	if err == nil && created {
		err = changeOwner(u, next)
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// checkDir rejects everything except a directory, for example a link to one.
func checkDir(f *os.File) error {
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

// changeOwner makes u the owner of a directory that was just created. If u may write to the parent
// directory, u may have replaced the new directory by another. So only an empty directory of root
// is given to u.
func changeOwner(u identity.User, created *os.File) error {
	fd, err := unix.Openat(int(created.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: created.Name(), Err: err}
	}
	dir := os.NewFile(uintptr(fd), created.Name())
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if _, err := dir.Readdirnames(1); info.Sys().(*syscall.Stat_t).Uid != 0 || !errors.Is(err, io.EOF) {
		return &fs.PathError{Op: "chown", Path: created.Name(), Err: syscall.EACCES}
	}
	return dir.Chown(int(u.UID), int(u.GID))
}
