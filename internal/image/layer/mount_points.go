package layer

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Exists reports whether a path exists. A link at its end counts, even if it is broken.
func (t *Tree) Exists(name string) (bool, error) {
	dir, base := path.Split(name)
	parent, err := t.find(strings.TrimSuffix(dir, "/"))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil || base == "" {
		return err == nil, err
	}
	defer parent.file.Close()
	var stat unix.Stat_t
	err = unix.Fstatat(int(parent.file.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// AddMountPoint creates an empty file as a mount point.
func (t *Tree) AddMountPoint(name string) error {
	if dir := path.Dir(name); dir != "." {
		if err := t.MakeStandardDirs(dir, 0o755); err != nil {
			return err
		}
	}
	if exists, err := t.Exists(name); err != nil || exists {
		return err
	}
	return t.WriteFile(name, nil, 0o644)
}

// Drop removes the file at a path.
func (t *Tree) Drop(name string) error {
	dir, base := path.Split(name)
	parent, err := t.find(strings.TrimSuffix(dir, "/"))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.file.Close()
	return t.remove(parent, base, path.Join(parent.path, base))
}

// Resolve returns a path below the root with all links resolved. If the end of the path does not
// exist, the existing part is resolved.
func (t *Tree) Resolve(name string) (string, error) {
	for rest := ""; ; {
		fd, err := unix.Openat2(int(t.root.Fd()), "./"+name, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
		if err == nil {
			f := os.NewFile(uintptr(fd), name)
			at, err := t.pathOf(f)
			f.Close()
			return path.Join(at, rest), err
		}
		if !errors.Is(err, unix.ENOENT) || name == "" {
			return "", explain(name, err)
		}
		rest = path.Join(path.Base(name), rest)
		if name = path.Dir(name); name == "." {
			name = ""
		}
	}
}
