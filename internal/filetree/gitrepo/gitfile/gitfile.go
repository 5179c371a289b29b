// Package gitfile owns reading single files of a git repository without following links or opening
// special files that a program may have created.
package gitfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/filetree/gitrepo/index"
)

// MaxLink bounds the size of a .git that is a file: a line that names a directory.
const MaxLink = 8 << 10

// ReadIndex reads an index of the workspace. It returns nil for a missing, split or malformed
// index. Such an index cannot be marked, but exported changes are checked nevertheless.
func ReadIndex(root *os.Root, name string) (*index.Index, error) {
	data, err := Read(root, name, index.MaxBytes)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrNotPlain) {
			return nil, nil
		}
		return nil, err
	}
	x, err := index.Parse(data)
	if err != nil {
		return nil, nil //nolint:nilerr // the index has no usable content
	}
	return x, nil
}

// ErrNotPlain is returned for a directory, a special file and a file that is too large.
var ErrNotPlain = errors.New("not a regular file of a readable size")

// Read reads a regular file of a directory. It rejects a file that is larger than limit bytes.
// Links are followed only within the root.
func Read(root *os.Root, name string, limit int64) ([]byte, error) {
	// Without O_NONBLOCK, opening a pipe would wait for a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, ErrNotPlain
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Common returns the directory that contains a repository's objects.
func Common(dir string) string {
	if above := path.Dir(dir); path.Base(above) == "worktrees" {
		return path.Dir(above)
	}
	return dir
}
