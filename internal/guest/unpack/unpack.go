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

// Over unpacks archive over the directory root. As a user that is not root, it sets no owners. It must be called before any program of
// the sandbox runs.
func Over(root string, archive io.Reader) error {
	t, err := openTree(root)
	if err != nil {
		return err
	}
	defer t.close()
	source := &endReader{r: archive}
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

// endReader detects a truncated archive. The library accepts one that ends between two files.
type endReader struct {
	r     io.Reader
	ended bool
}

// Read implements io.Reader.
func (m *endReader) Read(b []byte) (int, error) {
	n, err := m.r.Read(b)
	m.ended = m.ended || n == 0 && errors.Is(err, io.EOF)
	return n, err
}

// drain reads the padding after the last record of an archive.
func (m *endReader) drain() error {
	_, err := io.Copy(io.Discard, m.r)
	return err
}

// kernelDirs lists top-level directories whose files belong to the kernel. In the sandbox, mounts
// cover them.
var kernelDirs = []string{"proc", "sys", "dev"}

// entry unpacks one entry.
func (t *tree) entry(h *tar.Header, content io.Reader) error {
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if top, _, _ := strings.Cut(name, "/"); slices.Contains(kernelDirs, top) {
		return nil
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return errSparse
		}
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return errors.New("the root must be a directory")
		}
		return t.setMetadata(t.dirs[0].fd, h)
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
		if other, err := clean(h.Linkname); err == nil && t.deleted[other] {
			return t.remove(name)
		}
		return t.link(in, base, name, h)
	case tar.TypeFifo:
		return t.fifo(in, base, name, h)
	case tar.TypeChar:
		if h.Devmajor == 0 && h.Devminor == 0 {
			t.deleted[name] = true
			return t.remove(name)
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

// remove removes the file or directory tree at a name. Its parent directory was opened without
// following links.
func (t *tree) remove(name string) error {
	t.closeBelow(name)
	return t.root.RemoveAll(name)
}

func (t *tree) directory(in int, base, name string, h *tar.Header) error {
	before, err := stat(in, base)
	if err != nil {
		return err
	}
	exists := before != nil && before.Mode&unix.S_IFMT == unix.S_IFDIR
	if exists && before.Dev != t.dirs[len(t.dirs)-1].dev {
		return nil // a mount point
	}
	if before != nil && (!exists || opaque(h)) {
		if err := t.remove(name); err != nil {
			return err
		}
		exists = false
	}
	if !exists {
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
	return t.setMetadata(fd, h)
}

func (t *tree) file(in int, base, name string, h *tar.Header, content io.Reader) error {
	if err := t.remove(name); err != nil {
		return err
	}
	fd, err := unix.Openat(in, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	err = fill(f, content)
	if err == nil {
		err = t.setMetadata(fd, h)
	}
	return errors.Join(err, f.Close(), setTime(in, base, h.ModTime))
}

func (t *tree) symlink(in int, base, name string, h *tar.Header) error {
	if err := t.remove(name); err != nil {
		return err
	}
	if err := unix.Symlinkat(h.Linkname, in, base); err != nil {
		return err
	}
	if err := t.chown(in, base, h); err != nil {
		return err
	}
	return setTime(in, base, h.ModTime)
}

func (t *tree) link(in int, base, name string, h *tar.Header) error {
	other, err := clean(h.Linkname)
	if err != nil {
		return err
	}
	if err := t.remove(name); err != nil {
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
	if err := t.remove(name); err != nil {
		return err
	}
	if err := unix.Mknodat(in, base, unix.S_IFIFO|0o600, 0); err != nil {
		return err
	}
	if err := t.chown(in, base, h); err != nil {
		return err
	}
	// Fchmodat follows links, but no other process runs that could have replaced the file by one.
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
			continue // a later entry has replaced it
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
