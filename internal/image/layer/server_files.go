package layer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// The following functions write the server's files into an untrusted tree. They do not follow a
// link at the end of a path, and do not leave the tree.

// MakeOwn creates a directory without links in its path. It removes any other file at the path.
func (t *Tree) MakeOwn(name string, mode uint32) error {
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		parent, err := t.find(at)
		if err != nil {
			return err
		}
		next := path.Join(at, part)
		err = t.clear(parent, part, next, true)
		if err == nil {
			if err = unix.Mkdirat(int(parent.file.Fd()), part, 0o700); err == nil {
				t.dirs[next] = dirState{mode: 0o755}
			} else if errors.Is(err, unix.EEXIST) {
				err = nil
			}
		}
		parent.file.Close()
		if err != nil {
			return err
		}
		at = next
	}
	t.dirs[name] = dirState{mode: mode}
	return nil
}

// MakeStandardDirs creates a directory if it does not exist. It follows links within the tree.
func (t *Tree) MakeStandardDirs(name string, mode uint32) error {
	if t.made == nil {
		t.made = map[string]bool{}
	}
	p, err := t.find(name)
	if errors.Is(err, unix.ENOENT) {
		if p, err = t.makeDir(name); err == nil {
			t.dirs[p.path] = dirState{mode: mode}
		}
	}
	if err == nil {
		return p.file.Close()
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EEXIST) {
		return fault.Newf(fault.Invalid, CodeRefused, "the image has no directory /%s, because another file has that path", name)
	}
	return err
}

// Own sets the owner of a directory.
func (t *Tree) Own(name string, uid, gid uint32) error {
	p, err := t.find(name)
	if err != nil {
		return err
	}
	defer p.file.Close()
	if err := t.note(p.path, fileowners.Owner{UID: uid, GID: gid}); err != nil || !t.owners {
		return err
	}
	return unix.Fchownat(int(p.file.Fd()), "", int(uid), int(gid), unix.AT_EMPTY_PATH)
}

// WriteFile writes a file, and replaces an existing one. The directory must exist.
func (t *Tree) WriteFile(name string, data []byte, mode uint32) error {
	dir, base := path.Split(name)
	parent, err := t.find(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return err
	}
	defer parent.file.Close()
	if err := t.clear(parent, base, path.Join(parent.path, base), false); err != nil {
		return err
	}
	fd, err := unix.Openat(int(parent.file.Fd()), base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	return errors.Join(err, unix.Fchmod(fd, mode), f.Close())
}

// IsFile reports whether there is a regular file at a path, and not a link to one.
func (t *Tree) IsFile(name string) (bool, error) {
	dir, base := path.Split(name)
	parent, err := t.find(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return false, err
	}
	defer parent.file.Close()
	var stat unix.Stat_t
	err = unix.Fstatat(int(parent.file.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return stat.Mode&unix.S_IFMT == unix.S_IFREG, err
}

// AppendFile appends to a regular file. It follows links within the tree, and preserves owner and
// mode.
func (t *Tree) AppendFile(name string, data []byte) error {
	f, err := t.openFile(name, unix.O_WRONLY|unix.O_APPEND)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.Newf(fault.Invalid, CodeRefused, "/%s of the image is not a regular file", name)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Close())
}

// openFile opens a file as a program in the sandbox would find it.
func (t *Tree) openFile(name string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(t.root.Fd()), name, &unix.OpenHow{
		Flags:   flags | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// ReadFile reads a regular file of at most limit bytes. It follows links within the tree. For a
// missing file it returns fs.ErrNotExist.
func (t *Tree) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := t.openFile(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fault.Newf(fault.Invalid, CodeRefused, "/%s of the image is not a file of at most %d bytes", name, limit)
	}
	return io.ReadAll(f)
}
