package recording

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Info describes one command in a list.
type Info struct {
	Head
	// Tail is zero while the command runs, or if the recording process was killed.
	Tail
	// Dropped reports whether the output was dropped to free disk space.
	Dropped bool
}

// Newest returns a sandbox's newest commands, oldest first, at most the given number.
func (s *Store) Newest(sandbox string, limit int) ([]Info, error) {
	dir, err := s.path(sandbox)
	if err != nil {
		return nil, err
	}
	found := map[int]*Info{}
	err = entries(dir, func(e entry) {
		info := found[e.N]
		switch {
		case !e.ended():
			found[e.N] = &Info{Head: e.Head}
			delete(found, e.N-limit)
		case info != nil:
			info.Tail = e.Tail
			info.Dropped = e.Pack > 0 && !exists(filepath.Join(dir, packName(e.Pack)))
			if e.Pack == 0 {
				info.Dropped = !exists(filepath.Join(dir, ownName(e.N)))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(found))
	for _, n := range slices.Sorted(maps.Keys(found)) {
		infos = append(infos, *found[n])
	}
	return infos, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Open opens a recording, which the caller closes. The recording of a command that has just begun
// is empty.
func (s *Store) Open(sandbox string, n int) (io.ReadCloser, error) {
	dir, err := s.path(sandbox)
	if err != nil {
		return nil, err
	}
	// Try this name before and after reading the index, because the recording may get a file of its
	// own in between.
	f, err := open(filepath.Join(dir, ownName(n)))
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	var started bool
	var at entry // end of the command
	err = entries(dir, func(e entry) {
		if e.N == n {
			started = true
			if e.ended() {
				at = e
			}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case at.Pack > 0:
		f, err = open(filepath.Join(dir, packName(at.Pack)))
	default:
		f, err = open(filepath.Join(dir, ownName(n)))
	}
	switch {
	case err == nil && at.Pack > 0:
		return section{io.NewSectionReader(f, at.At, at.Size), f}, nil
	case errors.Is(err, fs.ErrNotExist) && started && !at.ended():
		return section{io.NewSectionReader(nil, 0, 0), io.NopCloser(nil)}, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, notFound(sandbox, n)
	}
	return f, err
}

// section is a recording within a pack.
type section struct {
	io.Reader
	io.Closer
}

// open opens a file for reading without following a symbolic link.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("recordings: %w", err)
	}
	return f, nil
}
