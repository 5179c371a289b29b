package volume

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Files are the files of a volume. A sandbox may change them at any time, so every path is resolved
// by the kernel in one call that follows no symbolic link and never leaves the volume.
type Files struct{ root *os.File }

// Close ends the access to the files.
func (f *Files) Close() error { return f.root.Close() }

// maxPath limits the length of a path in a volume.
const maxPath = 4096

// clean returns a path relative to the volume, or "." for the volume itself.
func clean(name string) (string, error) {
	if len(name) > maxPath || strings.ContainsRune(name, 0) {
		return "", fault.New(fault.Invalid, "volume_path_invalid", "a path in a volume has at most 4096 bytes and no NUL")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fault.Newf(fault.Invalid, "volume_path_invalid", "the path %.200q contains ..", name)
		}
	}
	rel := strings.TrimPrefix(path.Clean("/"+name), "/")
	if rel == "" {
		return ".", nil
	}
	return rel, nil
}

// beneath makes the kernel refuse each path that has a link or leads to another file system.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func openat2(dir *os.File, rel string, flags int, mode uint32) (*os.File, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Mode: uint64(mode), Resolve: beneath}
	for {
		fd, err := unix.Openat2(int(dir.Fd()), rel, how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) { // EAGAIN: a rename during the resolution
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), rel), nil
	}
}

// open opens a file. A pipe or a device in the volume does not block the server.
func (f *Files) open(name string, flags int) (*os.File, error) {
	rel, err := clean(name)
	if err != nil {
		return nil, err
	}
	file, err := openat2(f.root, rel, flags|unix.O_NONBLOCK, 0)
	return file, failure(name, err)
}

// parent opens the directory of a path, and returns the last element.
func (f *Files) parent(name string) (dir *os.File, base string, err error) {
	rel, err := clean(name)
	if err != nil {
		return nil, "", err
	}
	if rel == "." {
		return nil, "", fault.New(fault.Invalid, "volume_path_invalid", "the path is the volume itself")
	}
	dir, err = openat2(f.root, path.Dir(rel), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	return dir, path.Base(rel), failure(name, err)
}

// failure converts an error of the kernel about a path into a fault.
func failure(name string, err error) error {
	var kind fault.Kind
	var code, why string
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT):
		kind, code, why = fault.NotFound, "volume_path_not_found", "it does not exist"
	case errors.Is(err, unix.ELOOP):
		kind, code, why = fault.Invalid, "volume_path_link", "it is or contains a symbolic link, and links in volumes are not followed"
	case errors.Is(err, unix.EXDEV):
		kind, code, why = fault.Invalid, "volume_path_invalid", "it leads out of the volume"
	case errors.Is(err, unix.ENOTDIR):
		kind, code, why = fault.Invalid, "volume_path_invalid", "it is not a directory"
	case errors.Is(err, unix.EISDIR):
		kind, code, why = fault.Invalid, "volume_path_invalid", "it is a directory"
	case errors.Is(err, unix.ENAMETOOLONG):
		kind, code, why = fault.Invalid, "volume_path_invalid", "it is too long"
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY):
		kind, code, why = fault.Exists, "volume_path_exists", "it exists already"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind, code, why = fault.Exhausted, "volume_full", "the volume is full"
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		kind, code, why = fault.Invalid, "volume_path_invalid", "it is not a regular file"
	default:
		return fmt.Errorf("%s in a volume: %w", name, err)
	}
	return fault.Wrap(err, kind, code, fmt.Sprintf("the path %.200q in the volume: %s", name, why))
}
