package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// whiteoutPrefix is the prefix of an entry that removes a file of the layers below. With the suffix
// opaque, the entry removes all files of these layers in its directory.
const (
	whiteoutPrefix = ".wh."
	opaque         = ".wh..opq"
)

// whiteout removes files of the layers below. Files of the present layer stay.
func (t *Tree) whiteout(parent *openDirectory, name, hidden string) error {
	switch {
	case hidden == opaque:
		return t.removeBelow(parent)
	case strings.HasPrefix(hidden, whiteoutPrefix):
		return nil // metadata of aufs
	case hidden == "" || hidden == "." || hidden == "..":
		return refused(name, "its name does not name a file of the directory")
	}
	at := path.Join(parent.path, hidden)
	if t.made[at] || at == Reserved {
		return nil
	}
	return t.remove(parent, hidden, at)
}

// removeBelow removes all files in a directory that do not come from the present layer.
func (t *Tree) removeBelow(dir *openDirectory) error {
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		at := path.Join(dir.path, name)
		if at == Reserved {
			continue
		}
		if !t.made[at] {
			if err := t.remove(dir, name, at); err != nil {
				return err
			}
			continue
		}
		below, err := t.child(dir, name)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err != nil {
			return err
		}
		err = t.removeBelow(below)
		below.file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file, or a directory with everything in it. It follows no link.
func (t *Tree) remove(parent *openDirectory, name, at string) error {
	if t.parent != nil && t.parent != parent && (t.parent.path == at || strings.HasPrefix(t.parent.path, at+"/")) {
		t.forgetParent()
	}
	delete(t.special, at)
	err := unix.Unlinkat(int(parent.file.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	dir, err := t.child(parent, name)
	if err != nil {
		return err
	}
	defer dir.file.Close()
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for _, below := range names {
		if err := t.remove(dir, below, path.Join(at, below)); err != nil {
			return err
		}
	}
	delete(t.dirs, at)
	return unix.Unlinkat(int(parent.file.Fd()), name, unix.AT_REMOVEDIR)
}

// namesIn returns the names in an open directory.
func namesIn(dir *openDirectory) ([]string, error) {
	fd, err := unix.Openat(int(dir.file.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir.path)
	defer f.Close()
	return f.Readdirnames(-1)
}

// child opens a directory within another. For a link the error is unix.ELOOP or unix.ENOTDIR.
func (t *Tree) child(parent *openDirectory, name string) (*openDirectory, error) {
	fd, err := unix.Openat(int(parent.file.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &openDirectory{path: path.Join(parent.path, name), file: os.NewFile(uintptr(fd), name)}, nil
}

// find opens a directory of the tree by its name in an entry. It follows links as a program in the
// sandbox would: an absolute link, or one with "..", ends at the root of the tree and never leaves
// it.
func (t *Tree) find(name string) (*openDirectory, error) {
	fd, err := unix.Openat2(int(t.root.Fd()), "./"+name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	at, err := t.pathOf(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &openDirectory{name: name, path: at, file: f}, nil
}

// pathOf returns the path of an open directory below the root.
func (t *Tree) pathOf(f *os.File) (string, error) {
	full, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return "", err
	}
	base, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", t.root.Fd()))
	if err != nil {
		return "", err
	}
	if full == base {
		return "", nil
	}
	below, inside := strings.CutPrefix(full, base+"/")
	if !inside {
		return "", errors.New("a directory was moved out of the tree")
	}
	return below, nil
}

// open is find for the parent directory of an entry, which is created if no layer has it. The
// parent stays open until the next one, because entries of a directory are usually consecutive.
func (t *Tree) open(name string) (*openDirectory, error) {
	if t.parent != nil && t.parent.name == name {
		return t.parent, nil
	}
	p, err := t.find(name)
	if errors.Is(err, unix.ENOENT) && name != "" {
		p, err = t.makeDir(name)
	}
	if err != nil {
		return nil, err
	}
	t.forgetParent()
	t.parent = p
	return p, nil
}

// makeDir creates a directory that no layer describes, and those above it.
func (t *Tree) makeDir(name string) (*openDirectory, error) {
	dir, base := path.Split(name)
	parent, err := t.find(strings.TrimSuffix(dir, "/"))
	if errors.Is(err, unix.ENOENT) && dir != "" {
		parent, err = t.makeDir(strings.TrimSuffix(dir, "/"))
	}
	if err != nil {
		return nil, err
	}
	defer parent.file.Close()
	// If the path is a broken link, Mkdirat fails, so that the link's target is not created.
	if err := unix.Mkdirat(int(parent.file.Fd()), base, 0o700); err != nil {
		return nil, err
	}
	at := path.Join(parent.path, base)
	t.dirs[at] = dirState{mode: 0o755}
	t.made[at] = true
	return t.find(name)
}

// Finish sets the modes and times of directories. Nothing can be unpacked afterwards.
func (t *Tree) Finish() error {
	names := make([]string, 0, len(t.dirs))
	for name := range t.dirs {
		names = append(names, name)
	}
	// Inner directories first, because a directory may become inaccessible.
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	for _, name := range names {
		if err := t.finish(name, t.dirs[name]); err != nil {
			return fmt.Errorf("unpack %.200q: %w", name, err)
		}
	}
	return nil
}

// finish sets the mode and time of one directory.
func (t *Tree) finish(name string, state dirState) error {
	fd, err := unix.Openat2(int(t.root.Fd()), name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // a later entry replaced it
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, state.mode); err != nil {
		return err
	}
	if state.modified.IsZero() {
		return nil
	}
	stamp := unix.NsecToTimespec(state.modified.UnixNano())
	return unix.UtimesNanoAt(fd, "", []unix.Timespec{stamp, stamp}, unix.AT_EMPTY_PATH)
}

// RemoveTree removes a tree, even if it has directories that their owner may not enter.
func RemoveTree(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	if err := makeRemovable(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// makeRemovable gives the owner access to a directory and all directories below.
func makeRemovable(dir string) error {
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(1000)
		for _, e := range entries {
			if e.IsDir() {
				if err := makeRemovable(path.Join(dir, e.Name())); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
