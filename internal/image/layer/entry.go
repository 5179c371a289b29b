package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// entry unpacks one entry of a layer.
func (t *Tree) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if name == "" {
		return nil // the root's mode is set elsewhere
	}
	if name == Reserved || strings.HasPrefix(name, Reserved+"/") {
		t.counts.Skipped++
		return nil
	}
	dir, base := path.Split(name)
	parent, err := t.open(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return err
	}
	if parent.path == Reserved || strings.HasPrefix(parent.path, Reserved+"/") || parent.path == "" && base == Reserved {
		t.counts.Skipped++ // a link led to Reserved
		return nil
	}
	if hidden, ok := strings.CutPrefix(base, whiteoutPrefix); ok {
		return t.whiteout(parent, h.Name, hidden)
	}
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeGNUSparse:
	default:
		return refused(h.Name, fmt.Sprintf("its type %q is unknown", h.Typeflag))
	}
	at := path.Join(parent.path, base)
	if err := t.clear(parent, base, at, h.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err = t.directory(parent, base, at, h)
	case tar.TypeReg, tar.TypeGNUSparse:
		err = t.file(parent, base, h, content)
	case tar.TypeSymlink:
		err = t.symlink(parent, base, h)
	case tar.TypeLink:
		err = t.link(parent, base, h)
	default:
		// A device would give access to the host's, and a pipe could be shared between sandboxes.
		t.counts.Skipped++
		return nil
	}
	t.made[at] = true
	return err
}

// clear makes room for an entry: it removes an existing file, except a directory that stays a
// directory.
func (t *Tree) clear(parent *openDirectory, base, at string, directory bool) error {
	var stat unix.Stat_t
	err := unix.Fstatat(int(parent.file.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil || directory && stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return err
	}
	return t.remove(parent, base, at)
}

// directory creates a directory. Its mode and time are set by Finish.
func (t *Tree) directory(parent *openDirectory, base, at string, h *tar.Header) error {
	// Until Finish, this process can write to it, regardless of its mode.
	if err := unix.Mkdirat(int(parent.file.Fd()), base, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	t.dirs[at] = dirState{mode: permissions(h), modified: modified(h)}
	return t.own(parent, base, h)
}

// file creates a regular file.
func (t *Tree) file(parent *openDirectory, base string, h *tar.Header, content io.Reader) error {
	if h.Size > t.limits.Bytes-t.counts.Bytes {
		return tooLarge(t.limits)
	}
	fd, err := unix.Openat(int(parent.file.Fd()), base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	n, err := io.Copy(f, content)
	if t.counts.Bytes += n; err != nil {
		return err
	}
	if err := t.own(parent, base, h); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, permissions(h)); err != nil {
		return err
	}
	return setTime(parent, base, modified(h))
}

// tooLarge returns the error for an image above the limits.
func tooLarge(limits Limits) error {
	return fault.Newf(fault.Exhausted, CodeTooLarge, "the image unpacks to more than %d bytes", limits.Bytes)
}

// symlink creates a symbolic link.
func (t *Tree) symlink(parent *openDirectory, base string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) >= maxPathLength || strings.ContainsRune(h.Linkname, 0) {
		return refused(h.Name, "the target of the link is not a path")
	}
	// The target is only text here, because programs in the sandbox resolve it from their own root.
	if err := unix.Symlinkat(h.Linkname, int(parent.file.Fd()), base); err != nil {
		return err
	}
	if err := t.own(parent, base, h); err != nil {
		return err
	}
	return setTime(parent, base, modified(h))
}

// link creates a hard link to an existing file of the tree.
func (t *Tree) link(parent *openDirectory, base string, h *tar.Header) error {
	name, err := cleanName(h.Linkname)
	if err != nil {
		return err
	}
	dir, target := path.Split(name)
	from, err := t.find(strings.TrimSuffix(dir, "/"))
	if errors.Is(err, unix.ENOENT) || target == "" {
		return refused(h.Name, "it links to a missing file")
	}
	if err != nil {
		return err
	}
	defer from.file.Close()
	var stat unix.Stat_t
	err = unix.Fstatat(int(from.file.Fd()), target, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return refused(h.Name, "it links to a missing file")
	}
	if err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return refused(h.Name, "it is a hard link to a directory")
	}
	if err := unix.Linkat(int(from.file.Fd()), target, int(parent.file.Fd()), base, 0); err != nil {
		return err
	}
	if o, special := t.special[path.Join(from.path, target)]; special {
		return t.note(path.Join(parent.path, base), o)
	}
	return nil
}

// own sets the owner of a file. Without root, one user owns all files, and the owner is only
// recorded in the table.
func (t *Tree) own(parent *openDirectory, base string, h *tar.Header) error {
	const limit = 1<<32 - 2 // the last number means "unchanged"
	if h.Uid < 0 || h.Uid > limit || h.Gid < 0 || h.Gid > limit {
		return refused(h.Name, "its owner is not a valid user")
	}
	if err := t.note(path.Join(parent.path, base), fileowners.Owner{UID: uint32(h.Uid), GID: uint32(h.Gid), SetID: setID(h)}); err != nil || !t.owners {
		return err
	}
	return unix.Fchownat(int(parent.file.Fd()), base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW)
}

// setID returns the set-id bits of an entry that have an effect.
func setID(h *tar.Header) uint16 {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return uint16(h.Mode & (unix.S_ISUID | unix.S_ISGID))
	case tar.TypeDir:
		return uint16(h.Mode & unix.S_ISGID)
	}
	return 0
}

// permissions returns the mode bits that a file has on the host. A set-id program would give its
// owner's rights to any user of the host, so these bits are only recorded in the table of owners.
func permissions(h *tar.Header) uint32 {
	return uint32(h.Mode) & (0o777 | unix.S_ISVTX)
}

// modified returns the time of an entry, limited to the range of file systems.
func modified(h *tar.Header) time.Time {
	latest := time.Unix(1<<33, 0)
	if h.ModTime.Before(time.Unix(0, 0)) || h.ModTime.After(latest) {
		return time.Unix(0, 0)
	}
	return h.ModTime
}

// setTime sets the time of a file.
func setTime(parent *openDirectory, base string, at time.Time) error {
	stamp := unix.NsecToTimespec(at.UnixNano())
	return unix.UtimesNanoAt(int(parent.file.Fd()), base, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW)
}
