package volume

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Type is the type of a file in a volume.
type Type string

// Types of files. Pipes, sockets and devices are Other.
const (
	Regular   Type = "file"
	Directory Type = "directory"
	Symlink   Type = "symlink"
	Other     Type = "unknown"
)

// Entry describes a file in a volume.
type Entry struct {
	Name, Path string // Path begins with a slash, and "/" is the volume itself
	Type       Type
	Size       int64
	Mode       uint32 // permission bits
	UID, GID   uint32
	Accessed   time.Time
	Modified   time.Time
	Changed    time.Time
	Target     string // of a symbolic link
}

// maxEntries bounds the length of a listing.
const maxEntries = 20_000

// Stat describes a file. It does not follow a symbolic link.
func (f *Files) Stat(name string) (Entry, error) {
	rel, err := clean(name)
	if err != nil {
		return Entry{}, err
	}
	if rel == "." {
		return describe(f.root, "", "/")
	}
	dir, base, err := f.parent(name)
	if err != nil {
		return Entry{}, err
	}
	defer dir.Close()
	return describe(dir, base, "/"+rel)
}

// describe describes an entry of a directory, or the directory itself if base is "".
func describe(dir *os.File, base, at string) (Entry, error) {
	var s unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), base, &s, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH); err != nil {
		return Entry{}, failure(at, err)
	}
	moment := func(t unix.Timespec) time.Time { return time.Unix(t.Unix()).UTC() }
	e := Entry{
		Name: path.Base(at), Path: at, Type: Other, Size: s.Size, Mode: s.Mode & 0o7777, UID: s.Uid, GID: s.Gid,
		Accessed: moment(s.Atim), Modified: moment(s.Mtim), Changed: moment(s.Ctim),
	}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type = Regular
	case unix.S_IFDIR:
		e.Type = Directory
	case unix.S_IFLNK:
		e.Type = Symlink
		target := make([]byte, maxPath)
		n, err := unix.Readlinkat(int(dir.Fd()), base, target)
		if err != nil {
			return Entry{}, failure(at, err)
		}
		e.Target = string(target[:n])
	}
	return e, nil
}

// List describes the entries of a directory, and those below it down to the given depth.
func (f *Files) List(name string, depth int) ([]Entry, error) {
	var list []Entry
	err := f.walk(name, depth, func(e Entry) error {
		if len(list) == maxEntries {
			return fault.Newf(fault.Exhausted, "volume_listing_long", "the directory %.200q has more than %d entries", name, maxEntries)
		}
		list = append(list, e)
		return nil
	})
	return list, err
}

// walk visits the entries of a directory in the order of their names, a directory before its
// entries. Entries that vanish are left out. A negative depth has no limit.
func (f *Files) walk(name string, depth int, visit func(Entry) error) error {
	rel, err := clean(name)
	if err != nil {
		return err
	}
	dir, err := f.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return failure(name, err)
	}
	slices.Sort(names)
	for _, base := range names {
		e, err := describe(dir, base, path.Join("/", rel, base))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = visit(e)
		}
		if err == nil && e.Type == Directory && depth != 1 {
			if err = f.walk(e.Path, depth-1, visit); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// count measures the files of a volume without a quota.
func (f *Files) count() (u Usage, err error) {
	err = f.walk("/", -1, func(e Entry) error {
		u.UsedFiles++
		if e.Type == Regular {
			u.UsedBytes += e.Size
		}
		return nil
	})
	return u, err
}
