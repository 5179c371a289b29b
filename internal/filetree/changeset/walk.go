package changeset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// exportedModeBits are the mode bits that are applied outside.
const exportedModeBits = 0o777

// Walk lists a directory of the host, sorted by path, without content. It follows no link, even if
// a directory is replaced by one during the walk. skip reports paths to leave out with everything
// below them. Nil leaves out none. A directory that may not be read, or that is replaced during the
// walk, is Opaque.
func Walk(ctx context.Context, dir *os.Root, b Bounds, skip func(path string) bool) ([]Entry, error) {
	top, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	w := &walk{ctx: ctx, limit: b.OrDefault().Files, skip: skip}
	if err := w.dir(top, "", 0); err != nil {
		return nil, err
	}
	slices.SortFunc(w.all, func(x, y Entry) int { return strings.Compare(x.Path, y.Path) })
	return w.all, nil
}

// walk is the state of one call of Walk.
type walk struct {
	ctx   context.Context
	all   []Entry
	limit int
	skip  func(string) bool
}

// dir lists one directory and closes it.
func (w *walk) dir(d *os.File, parent string, depth int) error {
	defer d.Close()
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list %s: %w", parent, err)
	}
	for _, base := range names {
		name := path.Join(parent, base)
		if w.skip != nil && w.skip(name) {
			continue
		}
		e, err := lstatAt(int(d.Fd()), base)
		if errors.Is(err, unix.ENOENT) {
			continue // removed after the listing
		}
		if err != nil {
			return fmt.Errorf("stat %s: %w", name, err)
		}
		if len(w.all) == w.limit || depth == maxDepth || len(name) > maxPath {
			return fault.Newf(fault.Exhausted, "workspace_too_large", "%q has more than %d files, or directories nested more than %d deep", d.Name(), w.limit, maxDepth).
				WithHint("use a smaller directory as --workspace")
		}
		e.Path = name
		w.all = append(w.all, e)
		if e.Type != Dir {
			continue
		}
		sub, err := openAt(int(d.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY)
		switch {
		case errors.Is(err, unix.ENOENT):
			w.all = w.all[:len(w.all)-1]
			continue
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			// The file may not be read, or another file has replaced it.
			w.all[len(w.all)-1].Opaque = true
			continue
		case err != nil:
			return fmt.Errorf("open %s: %w", name, err)
		}
		if err := w.dir(sub, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// lstatAt describes one file of a directory, and the target of a link.
func lstatAt(dir int, base string) (Entry, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Entry{}, err
	}
	e := FromStat(&stat)
	if e.Type == Link {
		target, err := readlinkAt(dir, base)
		if errors.Is(err, unix.EINVAL) {
			return Entry{}, unix.ENOENT // another file has replaced it
		}
		if err != nil {
			return Entry{}, err
		}
		e.Target = target
	}
	return e, nil
}

// FromStat converts the result of stat, without path and target.
func FromStat(stat *unix.Stat_t) Entry {
	e := Entry{
		Type: Other, Mode: stat.Mode & 0o7777, Size: stat.Size, Ino: stat.Ino,
		MTime: time.Unix(0, stat.Mtim.Nano()), CTime: time.Unix(0, stat.Ctim.Nano()),
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type = Regular
	case unix.S_IFDIR:
		e.Type = Dir
	case unix.S_IFLNK:
		e.Type = Link
	}
	return e
}

// readlinkAt returns the target of a link in a directory.
func readlinkAt(dir int, base string) (string, error) {
	var buffer [maxPath + 1]byte
	n, err := unix.Readlinkat(dir, base, buffer[:])
	if err == nil && n > maxPath {
		err = unix.ENAMETOOLONG
	}
	return string(buffer[:max(n, 0)]), err
}

// openAt opens one file of a directory. It does not open a link.
func openAt(dir int, base string, flags int) (*os.File, error) {
	fd, err := unix.Openat(dir, base, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), base), nil
}
