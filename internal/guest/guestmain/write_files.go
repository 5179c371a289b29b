package guestmain

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
)

// writeFiles writes files below root, over existing ones. At a first boot, a file to which data is
// added must be the expected one. Later a user inside may have changed it, and then it is skipped.
func writeFiles(root string, list []guest.File, first bool) error {
	for _, f := range list {
		if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path {
			return fmt.Errorf("file %q: not a clean absolute path", f.Path)
		}
		f.Path = filepath.Join(root, f.Path)
		var err error
		switch {
		case f.Append || f.Around != nil:
			err = add(f, first)
		case !isUnchanged(f):
			err = replaceFile(f, "", f.Data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// relink returns the links of a configuration, with their targets. It removes the links that only
// the previous configuration had: a certificate's link, for example, is named after the
// certificate.
func relink(root string, previous map[string]string, list []guest.File) map[string]string {
	current := map[string]string{}
	for _, f := range list {
		if f.Link != "" {
			current[f.Path] = f.Link
		}
	}
	for name, to := range previous {
		if _, ok := current[name]; ok {
			continue
		}
		path := filepath.Join(root, name)
		if actual, err := os.Readlink(path); err == nil && actual == to {
			_ = os.Remove(path) // a link that remains does no harm
		}
	}
	return current
}

// isUnchanged reports whether a file already exists with this content. Skipping such files makes
// claims faster.
func isUnchanged(f guest.File) bool {
	info, err := os.Lstat(f.Path)
	if err != nil {
		return false
	}
	if f.Link != "" {
		to, err := os.Readlink(f.Path)
		return err == nil && to == f.Link
	}
	if !info.Mode().IsRegular() || info.Size() != int64(len(f.Data)) || info.Mode().Perm() != permission(f) {
		return false
	}
	data, err := readRegular(f.Path, int64(len(f.Data)))
	return err == nil && bytes.Equal(data, f.Data)
}

// permission returns the permission bits of a file.
func permission(f guest.File) fs.FileMode { return fs.FileMode(f.Mode) & fs.ModePerm }

// temporarySuffix is appended to a file's name for the temporary file that replaces it.
const temporarySuffix = ".crannog-new"

// overwrite replaces the content of a small file in place with one write. Renaming a new file over
// it would take several times as long, which matters for a claim.
func overwrite(path string, mode uint32, content []byte) error {
	file, size, err := openSingle(path)
	if err != nil {
		return replaceFile(guest.File{Path: path, Mode: mode}, "", content)
	}
	defer file.Close()
	if _, err := file.WriteAt(content, 0); err != nil {
		return err
	}
	if size > int64(len(content)) {
		return file.Truncate(int64(len(content)))
	}
	return nil
}

// openSingle opens a file to change it in place. It fails for anything but a regular file with one
// link.
func openSingle(path string) (*os.File, int64, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	var stat unix.Stat_t
	err = unix.Fstat(int(file.Fd()), &stat)
	if err == nil && (stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink != 1) {
		err = errUnexpectedFile
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, 0, err
	}
	return file, stat.Size, nil
}

// replaceFile creates a file from pieces. Programs may be reading the existing file, so a rename
// replaces it atomically. Links are not followed at either path: the target may be read-only, and
// an attacker may have created the link to redirect the guest's write.
func replaceFile(f guest.File, attribute string, pieces ...[]byte) error {
	next := f.Path + temporarySuffix
	err := create(next, f, attribute, pieces)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(f.Path), 0o755)
	case errors.Is(err, fs.ErrExist):
		err = os.RemoveAll(next)
	default:
		return finish(err, next, f.Path)
	}
	if err != nil {
		return err
	}
	return finish(create(next, f, attribute, pieces), next, f.Path)
}

// finish renames a new file, or removes it after an error.
func finish(err error, next, path string) error {
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next) // the file may not exist; err is the cause
	}
	return err
}

// create creates a file or link from pieces.
func create(path string, f guest.File, attribute string, pieces [][]byte) error {
	if f.Link != "" {
		return os.Symlink(f.Link, path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, permission(f))
	if err != nil {
		return err
	}
	defer file.Close()
	for _, piece := range pieces {
		if _, err := file.Write(piece); err != nil {
			return err
		}
	}
	if attribute == "" {
		return nil
	}
	// File systems without attributes are never saved, so they do not need one.
	err = unix.Fsetxattr(int(file.Fd()), addedAttribute, []byte(attribute), 0)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
