package copytree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Target is the destination of a copy: an open directory, and the missing rest of the path below
// it.
type Target struct {
	dir  int
	path string // path of dir, for messages
	// below are the names from dir down to the copy itself. If it is empty, the content of the
	// source is copied into dir.
	below []string
}

// Locate finds the destination of a copy of source at path, as cp does: in an existing directory,
// the copy has the source's name; otherwise path is the name of the copy. If parents is set,
// missing directories above it are part of the copy.
func Locate(path string, source Entry, parents bool) (*Target, error) {
	clean := filepath.Clean(path)
	info, err := os.Stat(clean)
	slash := strings.HasSuffix(path, "/") || strings.HasSuffix(path, "/.")
	switch {
	case err == nil && info.IsDir():
		return inDirectory(clean, source)
	case err == nil && (slash || source.Kind == Dir):
		return nil, &fs.PathError{Op: "write", Path: path, Err: unix.ENOTDIR}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil && slash && source.Kind != Dir:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	p := &Target{below: []string{filepath.Base(clean)}, path: filepath.Dir(clean)}
	for {
		p.dir, err = openPath(p.path)
		if !parents || !errors.Is(err, fs.ErrNotExist) || p.path == "/" || p.path == "." {
			break
		}
		p.below = append([]string{filepath.Base(p.path)}, p.below...)
		p.path = filepath.Dir(p.path)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// inDirectory returns the destination in an existing directory. If that contains a directory with
// the source's name, the two are merged.
func inDirectory(dir string, source Entry) (*Target, error) {
	fd, err := openPath(dir)
	if err != nil {
		return nil, err
	}
	return Within(os.NewFile(uintptr(fd), dir), source)
}

// Within returns a destination in an open directory, under the source's own name. It takes
// ownership of dir.
func Within(dir *os.File, source Entry) (*Target, error) {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	path := dir.Name()
	if err = errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	p := &Target{dir: fd, path: path}
	switch {
	case source.Name == "" && source.Kind == Dir:
		return p, nil
	case source.Name == "":
		p.Close()
		return nil, &fs.PathError{Op: "write", Path: path, Err: unix.EISDIR}
	}
	p.below = []string{source.Name}
	if source.Kind != Dir {
		return p, nil
	}
	sub, err := openDir(fd, source.Name)
	if err == nil {
		p.Close()
		return &Target{dir: sub, path: filepath.Join(path, source.Name)}, nil
	}
	return p, nil // if a file exists there, Receive returns an error
}

// LocateStrict is Locate with parents, and follows no link. It is for root, because unprivileged
// programs may have created links.
func LocateStrict(path string, source Entry) (*Target, error) {
	fd, err := openPath("/")
	if err != nil {
		return nil, err
	}
	clean := filepath.Clean(path)
	at := "/"
	parts := strings.Split(strings.Trim(clean, "/"), "/")
	if clean == "/" {
		parts = nil
	}
	for i, part := range parts {
		next, err := openDir(fd, part)
		switch {
		case err == nil:
			_ = unix.Close(fd) // used only for lookups
			fd, at = next, filepath.Join(at, part)
			continue
		case errors.Is(err, unix.ENOENT), i == len(parts)-1 && errors.Is(err, unix.ENOTDIR) && source.Kind != Dir:
			return At(os.NewFile(uintptr(fd), at), parts[i:]...)
		}
		_ = unix.Close(fd) // used only for lookups
		return nil, &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return Within(os.NewFile(uintptr(fd), at), source)
}

// At returns a destination at a path below an open directory. It takes ownership of dir.
func At(dir *os.File, below ...string) (*Target, error) {
	p, err := Within(dir, Entry{Kind: Dir})
	if err != nil {
		return nil, err
	}
	for _, name := range below {
		if !plainName(name) {
			p.Close()
			return nil, fmt.Errorf("%q is not a file name", name)
		}
	}
	p.below = below
	return p, nil
}

// openPath opens a directory.
func openPath(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// Path returns the path of the copy.
func (p *Target) Path() string { return filepath.Join(append([]string{p.path}, p.below...)...) }

// Close closes the directory.
func (p *Target) Close() { _ = unix.Close(p.dir) } // the writes were checked before
