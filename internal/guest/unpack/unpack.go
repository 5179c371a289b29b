// Package unpack owns unpacking the changed files of a sandbox over the root of a booting one, from
// a tar of the upper layer of its overlay.
package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The tar comes from a sandbox, whose root user may have written anything into it. So no link is
// followed: each directory is opened from its parent, and a link in its place is rejected.

// Over unpacks archive over the directory root, as root. It must be called before any program of
// the sandbox runs.
func Over(root string, archive io.Reader) error {
	t, err := openTree(root)
	if err != nil {
		return err
	}
	defer t.close()
	source := &measured{r: archive}
	in := tar.NewReader(source)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) && source.ended {
			return errors.New("unpack: the archive is cut short")
		}
		if errors.Is(err, io.EOF) {
			return errors.Join(t.finish(), source.drain())
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		if err := t.entry(header, in); err != nil {
			return fmt.Errorf("unpack %.200q: %w", header.Name, err)
		}
	}
}

// measured detects a truncated archive. The library accepts one that ends between two files.
type measured struct {
	r     io.Reader
	ended bool
}

// Read implements io.Reader.
func (m *measured) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	m.ended = m.ended || n == 0 && errors.Is(err, io.EOF)
	return n, err
}

// drain reads the padding after the last record of an archive.
func (m *measured) drain() error {
	_, err := io.Copy(io.Discard, m.r)
	return err
}

// kernels lists top-level directories whose files belong to the kernel. Files of the overlay there
// are below a mount.
var kernels = []string{"proc", "sys", "dev"}

// entry unpacks one entry.
func (t *tree) entry(h *tar.Header, content io.Reader) error {
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if top, _, _ := strings.Cut(name, "/"); slices.Contains(kernels, top) {
		return nil
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return errSparse
		}
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return errors.New("the root is a directory")
		}
		return t.describe(t.dirs[0].fd, h)
	}
	in, base, err := t.parent(name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return t.directory(in, base, name, h)
	case tar.TypeReg:
		return t.file(in, base, name, h, content)
	case tar.TypeSymlink:
		return t.symlink(in, base, name, h)
	case tar.TypeLink:
		// Deleted files of an overlay are hard links to one inode.
		if other, err := clean(h.Linkname); err == nil && t.gone[other] {
			return t.drop(name)
		}
		return t.link(in, base, name, h)
	case tar.TypeFifo:
		return t.fifo(in, base, name, h)
	case tar.TypeChar:
		if h.Devmajor == 0 && h.Devminor == 0 {
			t.gone[name] = true
			return t.drop(name)
		}
		return nil // programs of a sandbox cannot create devices
	case tar.TypeBlock:
		return nil
	case tar.TypeGNUSparse:
		return errSparse
	}
	return fmt.Errorf("an entry of the type %q", h.Typeflag)
}

// errSparse rejects sparse files, in which a few bytes of the archive could stand for more data
// than any disk holds.
var errSparse = errors.New("files with holes are not accepted in this form")

// clean returns the cleaned name, or an error if it leads out of the root.
func clean(name string) (string, error) {
	local := filepath.Clean(strings.TrimSuffix(name, "/"))
	if name == "" || !filepath.IsLocal(local) {
		return "", errors.New("the name leads out of the root")
	}
	return local, nil
}

// drop removes the file or directory tree at a name. Its parent directory was opened without
// following links.
func (t *tree) drop(name string) error {
	t.leave(name)
	return t.root.RemoveAll(name)
}

func (t *tree) directory(in int, base, name string, h *tar.Header) error {
	before, err := stat(in, base)
	if err != nil {
		return err
	}
	there := before != nil && before.Mode&unix.S_IFMT == unix.S_IFDIR
	if there && before.Dev != t.dirs[len(t.dirs)-1].dev {
		return nil // something else is mounted there
	}
	if before != nil && (!there || opaque(h)) {
		if err := t.drop(name); err != nil {
			return err
		}
		there = false
	}
	if !there {
		if err := unix.Mkdirat(in, base, 0o700); err != nil {
			return err
		}
	}
	fd, _, err := openDirectory(in, base)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The time is set at the end, because files may follow.
	t.times = append(t.times, dirTime{name, h.ModTime})
	return t.describe(fd, h)
}

func (t *tree) file(in int, base, name string, h *tar.Header, content io.Reader) error {
	if err := t.drop(name); err != nil {
		return err
	}
	fd, err := unix.Openat(in, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	err = fill(f, content)
	if err == nil {
		err = t.describe(fd, h)
	}
	return errors.Join(err, f.Close(), setTime(in, base, h.ModTime))
}

func (t *tree) symlink(in int, base, name string, h *tar.Header) error {
	if err := t.drop(name); err != nil {
		return err
	}
	if err := unix.Symlinkat(h.Linkname, in, base); err != nil {
		return err
	}
	if err := unix.Fchownat(in, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return setTime(in, base, h.ModTime)
}

func (t *tree) link(in int, base, name string, h *tar.Header) error {
	other, err := clean(h.Linkname)
	if err != nil {
		return err
	}
	if err := t.drop(name); err != nil {
		return err
	}
	// Opening the other parent directory may close this one.
	here, err := unix.FcntlInt(uintptr(in), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(here)
	from, otherBase, err := t.parent(other)
	if err != nil {
		return err
	}
	return unix.Linkat(from, otherBase, here, base, 0)
}

func (t *tree) fifo(in int, base, name string, h *tar.Header) error {
	if err := t.drop(name); err != nil {
		return err
	}
	if err := unix.Mknodat(in, base, unix.S_IFIFO|0o600, 0); err != nil {
		return err
	}
	if err := unix.Fchownat(in, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	// The file was created just now, and no other process runs that could replace it by a link.
	if err := unix.Fchmodat(in, base, permission(h), 0); err != nil {
		return err
	}
	return setTime(in, base, h.ModTime)
}

// permission returns the twelve permission bits.
func permission(h *tar.Header) uint32 { return uint32(h.Mode) & 0o7777 }

// dirTime is the modification time of a directory.
type dirTime struct {
	name string
	at   time.Time
}

// finish sets the modification times of directories, after everything in them was written.
func (t *tree) finish() error {
	for _, m := range slices.Backward(t.times) {
		in, base, err := t.parent(m.name)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue // a later entry took its place
		}
		if err == nil {
			err = setTime(in, base, m.at)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unpack %.200q: %w", m.name, err)
		}
	}
	return nil
}
