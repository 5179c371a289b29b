package filesystem

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// moveAcross moves an entry to another file system. It copies the entry to a temporary name beside
// the destination, renames the copy and removes the source. If it fails, source and destination are
// unchanged.
func moveAcross(source, destination string) error {
	tempDir, err := os.MkdirTemp(filepath.Dir(destination), ".move-")
	if err != nil {
		return err
	}
	staged := filepath.Join(tempDir, filepath.Base(destination))
	err = copyTree(source, staged)
	if err == nil {
		err = os.Rename(staged, destination)
	}
	if err := errors.Join(err, os.RemoveAll(tempDir)); err != nil {
		return err
	}
	return os.RemoveAll(source)
}

// copyTree copies an entry with everything below it, including modes and times.
func copyTree(source, destination string) error {
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(target, destination)
	case info.IsDir():
		err = copyDir(source, destination)
	case info.Mode().IsRegular():
		err = copyFile(source, destination)
	default:
		return fmt.Errorf("move %s: only files, directories and links can move to another file system: %w", source, unix.EINVAL)
	}
	if err != nil {
		return err
	}
	if err := os.Chmod(destination, info.Mode().Perm()|info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)); err != nil {
		return err
	}
	return os.Chtimes(destination, info.ModTime(), info.ModTime())
}

func copyDir(source, destination string) error {
	if err := os.Mkdir(destination, 0o700); err != nil {
		return err
	}
	children, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	for _, child := range children {
		if err := copyTree(filepath.Join(source, child.Name()), filepath.Join(destination, child.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(source, destination string) (err error) {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(destination, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return copyAttributes(int(in.Fd()), int(out.Fd()))
}

// copyAttributes copies the extended attributes of the user namespace.
func copyAttributes(from, to int) error {
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(from, names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list attributes: %w", err)
	}
	value := make([]byte, 64<<10)
	for _, name := range userAttributes(names[:n]) {
		size, err := unix.Fgetxattr(from, name, value)
		if err != nil {
			return fmt.Errorf("read attribute %s: %w", name, err)
		}
		if err := unix.Fsetxattr(to, name, value[:size], 0); err != nil {
			return fmt.Errorf("write attribute %s: %w", name, err)
		}
	}
	return nil
}

// userAttributes returns the names of the user namespace in a list of listxattr(2).
func userAttributes(list []byte) []string {
	var names []string
	for name := range strings.SplitSeq(string(list), "\x00") {
		if strings.HasPrefix(name, "user.") {
			names = append(names, name)
		}
	}
	return names
}
