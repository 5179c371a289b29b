package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// maxHeld limits how many files of one list are held open. Further files are found only by their
// path.
const maxHeld = 512

// Open is a file or directory that a process has open.
type Open struct {
	// Path is the path by which it was opened, according to /proc.
	Path string
	Dir  bool
	// Deleted means that the path no longer exists, or is another file.
	Deleted bool

	identity Identity
	held     *os.File // the file itself, whatever its path is now
}

// List has the open files of a process. The caller must close it.
type List []Open

// Close closes the files.
func (l List) Close() {
	for _, o := range l {
		if o.held != nil {
			o.held.Close() // it was only read
		}
	}
}

// OpenBy lists the files and directories below a directory that a process has open, according to
// the host's kernel. The process must not open or close any at the same time.
func OpenBy(pid int, below string) (list List, err error) {
	// Programs of the sandbox wait for this. Names relative to the directory take a third less time
	// than paths from the root.
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	links, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	// The process often waits for this, so that a second processor is free.
	at, middle := int(dir.Fd()), len(links)/2
	var half List
	var work errgroup.Group
	work.Go(func() (err error) {
		half, err = openAt(at, links[:middle], below)
		return err
	})
	rest, err := openAt(at, links[middle:], below)
	err = errors.Join(work.Wait(), err)
	all := append(half, rest...)
	if err != nil {
		all.Close()
		return nil, err
	}
	return withoutDoubles(all)
}

// openAt lists the targets of some links in a directory of /proc that are below another one.
func openAt(dir int, links []string, below string) (list List, err error) {
	for _, link := range links {
		o, err := describeTarget(dir, link, below)
		if err != nil {
			return list, err
		}
		if o == nil {
			continue
		}
		if !o.Dir && len(list) < maxHeld/2 {
			// The link in /proc leads to the file itself, even if it was removed.
			fd, err := unix.Openat(dir, link, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
			if err == nil {
				o.held = os.NewFile(uintptr(fd), o.Path)
			} else if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
				return list, &fs.PathError{Op: "open", Path: o.Path, Err: err}
			}
		}
		if list = append(list, *o); len(list) > maxFiles {
			return list, fmt.Errorf("more than %d files are open", maxFiles)
		}
	}
	return list, nil
}

// withoutDoubles leaves out, and closes, what is in a list already.
func withoutDoubles(all List) (list List, err error) {
	type key struct {
		path string
		is   Identity
	}
	seen := map[key]bool{}
	for _, o := range all {
		k := key{o.Path, o.identity}
		if seen[k] {
			List{o}.Close()
			continue
		}
		seen[k] = true
		list = append(list, o)
	}
	if len(list) > maxFiles {
		list.Close()
		return nil, fmt.Errorf("more than %d files are open", maxFiles)
	}
	return list, nil
}

// describeTarget describes the target of a link in a directory of /proc. It returns nil for a target
// that does not belong in the list.
func describeTarget(dir int, link, below string) (*Open, error) {
	var buffer [unix.PathMax]byte
	n, err := unix.Readlinkat(dir, link, buffer[:])
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // closed at the same time, so it does not stay open
	}
	if err == nil && n == len(buffer) {
		err = unix.ENAMETOOLONG // there may be more of it
	}
	if err != nil {
		return nil, &fs.PathError{Op: "readlink", Path: link, Err: err}
	}
	path := string(buffer[:n])
	if !Below(path, below) {
		return nil, nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, link, &st, 0); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	o := &Open{Path: path, identity: identityOf(&st)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		// A directory's times change with its content, so its identity is not compared.
		o.Dir, o.identity = true, Identity{}
	case unix.S_IFREG:
	default:
		return nil, nil
	}
	rest, deleted := strings.CutSuffix(path, " (deleted)") // the kernel's suffix
	if deleted && !o.Dir && st.Nlink > 0 {
		return nil, fmt.Errorf("%s: it has other names, so its own is not known", path)
	}
	if deleted {
		o.Path, o.Deleted = rest, true
	}
	return o, nil
}

// At describes an open file that is, or was, at a path of the host. Its Sum is "" if another file
// is there now and the open one cannot be read.
func (o Open) At(path string) (File, error) {
	if o.Dir {
		return File{Path: path, Dir: true}, nil
	}
	if o.held != nil {
		digest, size, err := sumOf(o.held, nil)
		if err != nil {
			return File{}, err
		}
		return File{Path: path, Size: size, Sum: digest, Mode: fs.FileMode(o.identity.mode & 0o777)}, nil
	}
	digest, size, err := sum(path, &o.identity)
	if err != nil && !changed(err) {
		return File{}, err
	}
	return File{Path: path, Size: size, Sum: digest, Mode: fs.FileMode(o.identity.mode & 0o777)}, nil
}

// MovedSince reports whether an open file, or a directory on its path below top, may have been
// moved after a time. The process may then have opened it by another path. A directory's change
// time equals its modification time except after a move or a change of permissions.
func (o Open) MovedSince(t time.Time, path, top string) (bool, error) {
	if !o.Dir && !o.Deleted && after(o.identity.ctime, t) {
		return true, nil
	}
	for dir := filepath.Dir(path); dir != top && Below(dir, top); dir = filepath.Dir(dir) {
		var st unix.Stat_t
		err := unix.Lstat(dir, &st)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return !o.Deleted, nil
		}
		if err != nil {
			return false, &fs.PathError{Op: "stat", Path: dir, Err: err}
		}
		if after(st.Ctim, t) && st.Ctim != st.Mtim {
			return true, nil
		}
	}
	return false, nil
}

func after(a unix.Timespec, t time.Time) bool { return time.Unix(a.Unix()).After(t) }
