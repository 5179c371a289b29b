// Package hostfiles owns the list of the host's files that a saved memory refers
// to: what each held when it was saved, and whether it still does.
package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Most is how many files and directories a list may have. A sandbox decides how
// many it opens, and each is read when its state is saved.
const Most = 4096

// File is a file or directory of the host that a saved memory refers to.
type File struct {
	Path string `json:"path"` // absolute, on the host
	Dir  bool   `json:"dir,omitempty"`
	Size int64  `json:"size,omitempty"`
	// Sum is the SHA-256 of a file. It is "" where another file was at the path
	// already when the state was saved.
	Sum string `json:"sum,omitempty"`
}

// Identity changes with every change of a file.
type Identity struct {
	dev, ino     uint64
	size         int64
	mode         uint32
	mtime, ctime unix.Timespec
}

func identityOf(st *unix.Stat_t) Identity {
	return Identity{dev: st.Dev, ino: st.Ino, size: st.Size, mode: st.Mode, mtime: st.Mtim, ctime: st.Ctim}
}

// sums are the digests of files by what they were. Sandboxes of one host map the
// same libraries, so nearly all are read once.
var sums = struct {
	sync.Mutex
	of map[Identity]string
}{of: map[Identity]string{}}

// mostSums bounds the digests that are remembered.
const mostSums = 16 * Most

// errChanged is the cause where a file is not the one that was expected.
var errChanged = errors.New("it was changed")

// sum returns the digest of the file at a path, and its size. Nothing at the end
// of the path is followed, and neither a pipe nor a device is waited for: what
// was a file when it was saved may have become anything.
func sum(path string, want *Identity) (string, int64, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return "", 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	is := identityOf(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFREG || want != nil && is != *want {
		return "", 0, errChanged
	}
	sums.Lock()
	known, ok := sums.of[is]
	sums.Unlock()
	if ok {
		return known, st.Size, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", 0, err
	}
	// A file that is written while it is read has no digest.
	var after unix.Stat_t
	if err := unix.Fstat(fd, &after); err != nil {
		return "", 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if identityOf(&after) != is {
		return "", 0, errChanged
	}
	digest := hex.EncodeToString(h.Sum(nil))
	sums.Lock()
	defer sums.Unlock()
	if len(sums.of) >= mostSums {
		clear(sums.of)
	}
	sums.of[is] = digest
	return digest, st.Size, nil
}

// Open is a file or directory that a process has open.
type Open struct {
	// Path is the path that it was opened by, as /proc of the process says.
	Path string
	Dir  bool
	is   Identity
}

// OpenBy lists the files and directories that a process has open below a
// directory, as the kernel of the host knows them. The process must not open or
// close any while they are listed.
func OpenBy(pid int, below string) ([]Open, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []Open
	seen := map[Open]bool{}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		path, err := os.Readlink(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed since, and so none of what stays open
		}
		if err != nil {
			return nil, err
		}
		if !Below(path, below) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
		o := Open{Path: path, Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, is: identityOf(&st)}
		if !o.Dir && st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if o.Dir {
			o.is = Identity{} // its times change with what is in it
		} else if st.Nlink == 0 {
			o.Path = cutDeleted(path)
		}
		if !seen[o] {
			seen[o] = true
			list = append(list, o)
		}
		if len(list) > Most {
			return nil, fmt.Errorf("more than %d files are open", Most)
		}
	}
	return list, nil
}

// cutDeleted takes away what the kernel adds to the path of a removed file.
func cutDeleted(path string) string {
	const deleted = " (deleted)"
	if n := len(path) - len(deleted); n > 0 && path[n:] == deleted {
		return path[:n]
	}
	return path
}

// Below reports whether a path is a directory or below it.
func Below(path, dir string) bool {
	return path == dir || dir == "/" || len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/'
}

// At describes an open file that is to be at a path of the host. Its Sum is ""
// if another is there.
func (o Open) At(path string) (File, error) {
	if o.Dir {
		return File{Path: path, Dir: true}, nil
	}
	digest, size, err := sum(path, &o.is)
	if err != nil && !changed(err) {
		return File{}, err
	}
	return File{Path: path, Size: size, Sum: digest}, nil
}

// changed reports whether an error says that a file is another one. Any other
// says that it cannot be known.
func changed(err error) bool {
	return errors.Is(err, errChanged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// Changed returns the first path of a list at which another file is now. An
// error says that it could not be found out.
func Changed(list []File) (string, error) {
	for _, f := range list {
		if f.Dir {
			info, err := os.Lstat(f.Path)
			if err != nil && !changed(err) {
				return "", err
			}
			if err != nil || !info.IsDir() {
				return f.Path, nil
			}
			continue
		}
		digest, size, err := sum(f.Path, nil)
		if err != nil && !changed(err) {
			return "", err
		}
		if err != nil || f.Sum == "" || digest != f.Sum || size != f.Size {
			return f.Path, nil
		}
	}
	return "", nil
}
