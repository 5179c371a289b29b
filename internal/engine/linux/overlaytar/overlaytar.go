// Package overlaytar owns writing the upper directories of overlays as one tar: the files that a
// sandbox changed below its root, and the ones that it removed.
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

// Options configure Write.
type Options struct {
	// Owner returns the user and group ID that a file has in the tar.
	Owner func(uid, gid int) (int, int)
	// Unchanged lists files that were created with the sandbox, by path. They are left out while
	// they still have this change time.
	Unchanged map[string]time.Time
	// Removed lists paths whose removal is left out.
	Removed []string
	// Points lists directories that are left out with all that they contain: other file systems are
	// mounted there.
	Points []string
	// Skip reports whether a path is left out with everything below it. Nil leaves out nothing.
	Skip func(name string) bool
	// Initial lists paths that the layers had at first. They are for layers that are no overlays, in
	// which the removal of a file leaves nothing: a path that no longer exists is written as removed.
	Initial []string
	// Most bounds the size of all files together, including their holes.
	Most int64
}

// ErrTooLarge is returned if the files are larger than Options.Most.
var ErrTooLarge = errors.New("the files are too large, including their holes")

// maxDepth bounds how many directories are open at once.
const maxDepth = 500

// Write writes the layers as a tar to w. A removed file is a character device 0:0 with its name. An
// opaque directory has the attribute trusted.overlay.opaque. Sockets are left out. A file that
// shrinks while it is read is padded to its earlier size.
func Write(ctx context.Context, w io.Writer, layers []Layer, o Options) error {
	a := &archive{ctx: ctx, w: tar.NewWriter(w), o: o}
	if len(o.Initial) > 0 {
		a.seen = map[string]bool{}
	}
	for _, l := range layers {
		a.links = map[uint64]string{}
		if err := a.layer(l); err != nil {
			return err
		}
	}
	if err := a.removals(); err != nil {
		return err
	}
	return a.w.Close()
}

// archive is one tar while it is written.
type archive struct {
	ctx   context.Context
	w     *tar.Writer
	o     Options
	links map[uint64]string // first names of files with several names, in this layer
	seen  map[string]bool   // whether a path that exists is a directory that was read; nil without Options.Initial
	bytes int64
}

// note records that a path exists.
func (a *archive) note(name string, isDir bool) {
	if a.seen != nil {
		a.seen[name] = isDir
	}
}

// removals writes the initial paths that no longer exist. A path in a directory that no longer
// exists, is no directory now, or was skipped, is left out.
func (a *archive) removals() error {
	for _, name := range a.o.Initial {
		if _, exists := a.seen[name]; exists || !a.seen[path.Dir(name)] {
			continue
		}
		h := &tar.Header{Typeflag: tar.TypeChar, Name: name, Format: tar.FormatPAX}
		if err := a.w.WriteHeader(h); err != nil {
			return err
		}
	}
	return nil
}

// layer writes a layer's directory itself, because a program may have changed its attributes, and
// its contents.
func (a *archive) layer(l Layer) error {
	info, err := l.Upper.Stat(".")
	if err != nil {
		return err
	}
	a.note(l.Path, true)
	if err := a.entry(l.Upper, ".", l.Path, info); err != nil {
		return err
	}
	return a.directory(l.Upper, l.Path, 0)
}

// directory writes the contents of a directory.
func (a *archive) directory(d *os.Root, name string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("/%s is more than %d directories deep", name, maxDepth)
	}
	f, err := d.Open(".")
	if err != nil {
		return withSandboxPath(name, err)
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return withSandboxPath(name, err)
	}
	slices.Sort(names)
	for _, base := range names {
		if a.ctx.Err() != nil {
			return context.Cause(a.ctx)
		}
		inside := path.Join(name, base)
		if slices.Contains(a.o.Points, inside) {
			continue
		}
		info, err := d.Lstat(base)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed in between
		}
		if err == nil {
			skip := a.o.Skip != nil && a.o.Skip(inside)
			a.note(inside, info.IsDir() && !skip)
			if skip {
				continue
			}
			err = a.entry(d, base, inside, info)
		}
		if err != nil {
			return withSandboxPath(inside, err)
		}
		if !info.IsDir() {
			continue
		}
		below, err := d.OpenRoot(base)
		if err != nil {
			return withSandboxPath(inside, err)
		}
		err = a.directory(below, inside, depth+1)
		if err = errors.Join(err, below.Close()); err != nil {
			return err
		}
	}
	return nil
}

// withSandboxPath replaces the host's path in an error by the path in the sandbox.
func withSandboxPath(name string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return &fs.PathError{Op: "archive", Path: "/" + strings.TrimPrefix(name, "/"), Err: err}
}

// entry writes one file, link or removal, or a directory without its contents.
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

// unchanged reports whether an entry was created with the sandbox and has not changed.
func (a *archive) unchanged(name string, info fs.FileInfo, stat *syscall.Stat_t) bool {
	if info.Mode()&fs.ModeCharDevice != 0 && slices.Contains(a.o.Removed, name) {
		return true
	}
	created, ok := a.o.Unchanged[name]
	return ok && created.Equal(time.Unix(stat.Ctim.Unix()))
}

// content writes as many bytes as the header states.
func (a *archive) content(f *os.File, h *tar.Header) error {
	if a.bytes += h.Size; a.bytes > a.o.Most || a.bytes < 0 {
		return ErrTooLarge
	}
	if err := a.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.Copy(a.w, &contextReader{a.ctx, io.LimitReader(f, h.Size)})
	if err != nil {
		return err
	}
	_, err = io.CopyN(a.w, zeros{}, h.Size-n)
	return err
}

// zeros pads a file that was truncated while it was read.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// contextReader is a reader that fails when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (u *contextReader) Read(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}
