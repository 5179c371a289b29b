// Package overlaytar owns writing the upper directories of overlays as one tar: what a sandbox has
// changed below its root, and what it has removed.
package overlaytar

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Layer is the upper directory of one overlay.
type Layer struct {
	Upper *os.Root
	// Path is where the overlay is mounted, relative to the root of the tar; "" is the root itself.
	Path string
}

// Options describe what is written.
type Options struct {
	// Owner returns the IDs that a file's owners have in the tar.
	Owner func(uid, gid int) (int, int)
	// Unchanged are files that were made with the sandbox, by path: they are left out as long as
	// they have the time of change that they had then.
	Unchanged map[string]time.Time
	// Removed are paths whose removals are left out.
	Removed []string
	// Most bounds the size of all files together, including their holes.
	Most int64
}

// ErrTooLarge is returned if the files are larger than Options.Most.
var ErrTooLarge = errors.New("the files are too large, including their holes")

// maxDepth bounds how many directories are open at once.
const maxDepth = 500

// Write writes the layers as a tar to w. A removed file is a character device 0:0 of its name, and
// a directory that hides the one below it has the attribute trusted.overlay.opaque. Sockets are
// left out. A file that changes while it is read has the size that it had before.
func Write(ctx context.Context, w io.Writer, layers []Layer, o Options) error {
	a := &archive{ctx: ctx, w: tar.NewWriter(w), o: o}
	for _, l := range layers {
		a.links = map[uint64]string{}
		if err := a.top(l); err != nil {
			return err
		}
	}
	return a.w.Close()
}

type archive struct {
	ctx   context.Context
	w     *tar.Writer
	o     Options
	links map[uint64]string // first names of files with several, in this layer
	bytes int64
}

// top writes the directory itself, whose attributes a program may have changed, and what is in it.
func (a *archive) top(l Layer) error {
	info, err := l.Upper.Stat(".")
	if err != nil {
		return err
	}
	if err := a.entry(l.Upper, ".", l.Path, info); err != nil {
		return err
	}
	return a.directory(l.Upper, l.Path, 0)
}

// directory writes what is in one directory.
func (a *archive) directory(d *os.Root, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("/%s is more than %d directories deep", name, maxDepth)
	}
	f, err := d.Open(".")
	if err != nil {
		return named(name, err)
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return named(name, err)
	}
	slices.Sort(names)
	for _, base := range names {
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		at := path.Join(name, base)
		info, err := d.Lstat(base)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed since
		}
		if err == nil {
			err = a.entry(d, base, at, info)
		}
		if err != nil {
			return named(at, err)
		}
		if !info.IsDir() {
			continue
		}
		below, err := d.OpenRoot(base)
		if err != nil {
			return named(at, err)
		}
		err = a.directory(below, at, depth+1)
		if err = errors.Join(err, below.Close()); err != nil {
			return err
		}
	}
	return nil
}

// named adds the path inside to an error, and takes away the one on the host.
func named(name string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return &fs.PathError{Op: "archive", Path: "/" + strings.TrimPrefix(name, "/"), Err: err}
}

// entry writes one file, link or removal, or a directory without what is in it.
func (a *archive) entry(d *os.Root, base, name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || a.unchanged(name, info, stat) {
		return nil
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		var err error
		if target, err = d.Readlink(base); err != nil {
			return err
		}
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return nil
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Format, h.Uname, h.Gname = name, tar.FormatPAX, "", ""
	h.AccessTime, h.ChangeTime = time.Time{}, time.Time{}
	h.Uid, h.Gid = a.o.Owner(h.Uid, h.Gid)
	if info.IsDir() {
		h.Name = path.Join(".", name) + "/"
	}
	if first, known := a.links[stat.Ino]; known && info.Mode().IsRegular() {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return a.w.WriteHeader(h)
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return a.w.WriteHeader(h)
	}
	if stat.Nlink > 1 && info.Mode().IsRegular() {
		a.links[stat.Ino] = name
	}
	f, err := d.OpenFile(base, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if h.PAXRecords, err = attributes(int(f.Fd())); err != nil {
		return err
	}
	if info.IsDir() {
		return a.w.WriteHeader(h)
	}
	return a.content(f, h)
}

// unchanged reports whether an entry was made with the sandbox and is as it was.
func (a *archive) unchanged(name string, info fs.FileInfo, stat *syscall.Stat_t) bool {
	if info.Mode()&fs.ModeCharDevice != 0 && slices.Contains(a.o.Removed, name) {
		return true
	}
	was, ok := a.o.Unchanged[name]
	return ok && was.Equal(time.Unix(stat.Ctim.Unix()))
}

// content writes a file of the size in the header.
func (a *archive) content(f *os.File, h *tar.Header) error {
	if a.bytes += h.Size; a.bytes > a.o.Most || a.bytes < 0 {
		return ErrTooLarge
	}
	if err := a.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(a.w, &untilDone{a.ctx, io.LimitReader(f, h.Size)})
	if err != nil {
		return err
	}
	_, err = io.CopyN(a.w, zeros{}, h.Size-n)
	return err
}

// zeros stand for what was cut off from a file while it was read.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// untilDone is a reader that ends with a context.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}
