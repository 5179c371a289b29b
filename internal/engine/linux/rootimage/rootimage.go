// Package rootimage owns the read-only file systems that kernels of sandboxes mount: EROFS files with
// the files of directories of the host, and the owners that these have in the sandbox.
package rootimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// Tree is a file or a directory of the host that an image contains.
type Tree struct {
	// Source is a path of the host, and Target the one in the image, absolute and clean.
	Source, Target string
	// Owner returns the owner that a file has in the image, by its path in the tree ("/" is the
	// tree itself) and the owner on the host.
	Owner func(name string, uid, gid uint32) fileowners.Owner
	// Empty reports whether a file or a directory is empty in the image, by its path in the tree.
	// Nil means that none is.
	Empty func(name string) bool
	// Without lists paths in the tree that are left out, because another tree contains them.
	Without []string
}

// FromTable returns the owners of a table, and root for all other files, because the tree of an
// unpacked image belongs to the server's user.
func FromTable(t fileowners.Table) func(string, uint32, uint32) fileowners.Owner {
	return func(name string, _, _ uint32) fileowners.Owner {
		owner, _ := t.Of(name)
		return owner
	}
}

// AllOf returns one owner for all files.
func AllOf(uid, gid uint32) func(string, uint32, uint32) fileowners.Owner {
	return func(string, uint32, uint32) fileowners.Owner { return fileowners.Owner{UID: uid, GID: gid} }
}

// draftPrefix is the name prefix of images that are being written.
const draftPrefix = ".draft-"

// IsDraft reports whether a name is that of a file that Write makes and removes. If the program
// ended in between, the file is left.
func IsDraft(name string) bool {
	return strings.HasPrefix(name, draftPrefix) || strings.HasPrefix(name, "erofs-mkfs-") // go-erofs's
}

// Write creates an image atomically. After an error, there is no file at the path. After a crash of
// the host, the file may be incomplete.
func Write(ctx context.Context, name string, trees []Tree) error {
	return write(ctx, name, trees, func(*os.File) error { return nil })
}

// write is Write, and calls flush with the complete file before it gets its name.
func write(ctx context.Context, name string, trees []Tree, flush func(*os.File) error) (err error) {
	draft, err := os.CreateTemp(filepath.Dir(name), draftPrefix+"*")
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	w := erofs.Create(draft, erofs.WithTempDir(filepath.Dir(name)))
	for _, t := range trees {
		if err = t.add(ctx, w); err != nil {
			break
		}
	}
	// The writer has data in a temporary file until it is closed.
	if err = errors.Join(err, w.Close()); err == nil {
		err = mappable(draft)
	}
	if err == nil {
		err = flush(draft)
	}
	if err = errors.Join(err, draft.Chmod(0o444), draft.Close()); err != nil {
		return fmt.Errorf("image of files: %w", err)
	}
	return os.Rename(draft.Name(), name)
}

// sectorSize is the size of a block, and the unit in which a disk is read. A kernel ignores data
// beyond the last whole sector.
const sectorSize = 4096

// add adds a tree to an image. It follows no link.
func (t Tree) add(ctx context.Context, w *erofs.Writer) error {
	return filepath.WalkDir(t.Source, func(source string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		name := path.Clean("/" + filepath.ToSlash(strings.TrimPrefix(source, t.Source)))
		if slices.Contains(t.Without, name) {
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed in between
		}
		if err != nil {
			return err
		}
		added, err := t.addFile(w, source, name, info)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if entry.IsDir() && (!added || t.Empty != nil && t.Empty(name)) {
			return fs.SkipDir
		}
		return nil
	})
}

// addFile adds one file, and reports whether it did. It leaves out sockets and devices, which have
// no meaning in another machine.
func (t Tree) addFile(w *erofs.Writer, source, name string, info fs.FileInfo) (added bool, err error) {
	target := path.Join(t.Target, name)
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false, errors.New("the owner is unknown")
	}
	switch info.Mode().Type() { // the others are left out
	case fs.ModeDir:
		err = w.Mkdir(target, info.Mode().Perm())
	case fs.ModeSymlink:
		var link string
		if link, err = os.Readlink(source); err == nil {
			err = w.Symlink(link, target)
		}
	case fs.ModeNamedPipe:
		err = w.Mknod(target, unix.S_IFIFO|uint16(info.Mode().Perm()), 0)
	case 0:
		err = t.copyFile(w, source, target, name)
	default:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	owner := t.Owner(name, stat.Uid, stat.Gid)
	mode := info.Mode().Perm() | info.Mode()&fs.ModeSticky
	// The set-id bits of an unpacked image are in its table of owners. Other files keep theirs.
	if owner.SetID&unix.S_ISUID != 0 || info.Mode()&fs.ModeSetuid != 0 {
		mode |= fs.ModeSetuid
	}
	if owner.SetID&unix.S_ISGID != 0 || info.Mode()&fs.ModeSetgid != 0 {
		mode |= fs.ModeSetgid
	}
	err = errors.Join(w.Chown(target, int(owner.UID), int(owner.GID)), w.Chtimes(target, info.ModTime(), info.ModTime()))
	if info.Mode().Type() != fs.ModeSymlink {
		err = errors.Join(err, w.Chmod(target, mode))
	}
	return true, err
}

// copyFile copies the content of a regular file.
func (t Tree) copyFile(w *erofs.Writer, source, target, name string) error {
	to, err := w.Create(target)
	if err != nil {
		return err
	}
	if t.Empty != nil && t.Empty(name) {
		return to.Close()
	}
	// The entry was a regular file when the directory was read. If a link or a pipe has replaced it
	// since then, this is an error.
	from, err := os.OpenFile(source, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return errors.Join(err, to.Close())
	}
	defer from.Close()
	if info, err := from.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(errors.New("no longer a regular file"), err, to.Close())
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
