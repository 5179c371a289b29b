package layer

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Exists reports whether a path leads to something, which a link at its end is already.
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

// Place makes an empty file for a file to be shown in its place.
func (t *Tree) Place(name string) error {
	if dir := path.Dir(name); dir != "." {
		if err := t.MakeUsual(dir, 0o755); err != nil {
			return err
		}
	}
	if there, err := t.Exists(name); err != nil || there {
		return err
	}
	return t.WriteFile(name, nil, 0o644)
}

// Drop removes what is at a path.
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

// Resolve returns the path below the root to which a path leads, with no link on it. Of a
// path whose end is not there, the part that is there is resolved.
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
