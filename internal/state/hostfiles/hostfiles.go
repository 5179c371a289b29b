// Package hostfiles owns the list of host files to which saved memory refers: their content at the
// time of saving, whether they have changed since, and the stored copies.
package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxFiles limits the length of a list. A sandbox controls how many files it opens, and each is
// read when its state is saved.
const maxFiles = 4096

// File is a file or directory of the host to which saved memory refers.
type File struct {
	Path   string `json:"path"`             // absolute, on the host
	Inside string `json:"inside,omitempty"` // absolute, in the sandbox
	Dir    bool   `json:"dir,omitempty"`
	Size   int64  `json:"size,omitempty"`
	// Sum is the SHA-256 of a file. It is "" if another file was at the path when the state was
	// saved and the open file could not be read.
	Sum string `json:"sum,omitempty"`
	// Mode has the permissions of a file with Kept set, of which a Store has a copy.
	Mode fs.FileMode `json:"mode,omitempty"`
	Kept bool        `json:"kept,omitempty"`
}

// Identity changes whenever the file changes.
type Identity struct {
	dev, ino     uint64
	size         int64
	mode         uint32
	mtime, ctime unix.Timespec
}

func identityOf(st *unix.Stat_t) Identity {
	return Identity{dev: st.Dev, ino: st.Ino, size: st.Size, mode: st.Mode, mtime: st.Mtim, ctime: st.Ctim}
}

// sums caches digests by identity. Sandboxes of one host map the same libraries, so nearly all
// files are read only once.
var sums = struct {
	sync.Mutex
	of map[Identity]string
}{of: map[Identity]string{}}

// maxSums limits the cached digests.
const maxSums = 16 * maxFiles

// errChanged is returned if a file is not the expected one.
var errChanged = errors.New("it was changed")

// sum returns the digest and size of the file at a path. It follows no link at the end of the path
// and does not block on a pipe or device, because the file may have been replaced.
func sum(path string, want *Identity) (string, int64, error) {
	f, err := openFile(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	return sumOf(f, want)
}

func openFile(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// sumOf is like sum, for an open file. It reads the whole file without moving the offset.
func sumOf(f *os.File, want *Identity) (string, int64, error) {
	is, err := identify(f)
	if err != nil {
		return "", 0, err
	}
	if is.mode&unix.S_IFMT != unix.S_IFREG || want != nil && is != *want {
		return "", 0, errChanged
	}
	sums.Lock()
	known, ok := sums.of[is]
	sums.Unlock()
	if ok {
		return known, is.size, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, is.size)); err != nil {
		return "", 0, err
	}
	// A file that changes while it is read has no digest.
	after, err := identify(f)
	if err != nil {
		return "", 0, err
	}
	if after != is {
		return "", 0, errChanged
	}
	digest := hex.EncodeToString(h.Sum(nil))
	sums.Lock()
	defer sums.Unlock()
	if len(sums.of) >= maxSums {
		clear(sums.of)
	}
	sums.of[is] = digest
	return digest, is.size, nil
}

func identify(f *os.File) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Identity{}, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return identityOf(&st), nil
}

// changed reports whether an error means that the file has changed. After any other error this is
// unknown.
func changed(err error) bool {
	return errors.Is(err, errChanged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// Changed returns the files of a list that were changed or removed. It returns an error if this
// could not be determined.
func Changed(list []File) (differing []File, err error) {
	for _, f := range list {
		same, err := f.same()
		if err != nil && !changed(err) {
			return nil, err
		}
		if err != nil || !same {
			differing = append(differing, f)
		}
	}
	return differing, nil
}

func (f File) same() (bool, error) {
	if f.Dir {
		info, err := os.Lstat(f.Path)
		return err == nil && info.IsDir(), err
	}
	digest, size, err := sum(f.Path, nil)
	return err == nil && f.Sum != "" && digest == f.Sum && size == f.Size, err
}

// Below reports whether a path is dir or below it.
func Below(path, dir string) bool {
	return path == dir || dir == "/" || len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/'
}
