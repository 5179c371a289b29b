package buildcontext

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"

	"github.com/crannog/crannog/internal/fault"
)

// Pack writes the files of a directory that are not ignored as a tar. It accepts only regular
// files, directories and symbolic links: a build that read a device or a pipe of the machine might
// never end, or might disclose data.
func Pack(ctx context.Context, root *os.Root, ignore *Ignore, w io.Writer) error {
	p := &packer{ctx: ctx, root: root, ignore: ignore, tar: tar.NewWriter(w), written: map[string]bool{}}
	if err := p.directory(".", patternmatcher.MatchInfo{}); err != nil {
		return err
	}
	return p.tar.Close()
}

// packer writes a context.
type packer struct {
	ctx     context.Context
	root    *os.Root
	ignore  *Ignore
	tar     *tar.Writer
	written map[string]bool // directories that are written already
}

// directory writes the files below a directory.
func (p *packer) directory(dir string, parentMatch patternmatcher.MatchInfo) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	entries, err := fs.ReadDir(p.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		excluded, info, err := p.ignore.matches(name, parentMatch)
		if err != nil {
			return fault.Wrap(err, fault.Invalid, CodeInvalid, "the .dockerignore cannot be applied")
		}
		if e.IsDir() {
			if excluded && p.ignore.prunes(name) {
				continue
			}
			if !excluded {
				if err := p.parents(name + "/x"); err != nil {
					return err
				}
			}
			if err := p.directory(name, info); err != nil {
				return err
			}
			continue
		}
		if excluded {
			continue
		}
		if err := errors.Join(p.parents(name), p.file(name)); err != nil {
			return err
		}
	}
	return nil
}

// parents writes the parent directories of an included file, if they are not written yet.
func (p *packer) parents(name string) error {
	dir := path.Dir(name)
	if dir == "." || p.written[dir] {
		return nil
	}
	if err := p.parents(dir); err != nil {
		return err
	}
	p.written[dir] = true
	info, err := p.root.Lstat(dir)
	if err != nil {
		return err
	}
	return p.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: int64(info.Mode().Perm()) | specialBits(info.Mode()), ModTime: info.ModTime()})
}

// specialBits returns the sticky, set-user-ID and set-group-ID bits of a mode.
func specialBits(m fs.FileMode) (bits int64) {
	for bit, value := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			bits |= value
		}
	}
	return bits
}

// file writes a regular file or a symbolic link.
func (p *packer) file(name string) error {
	info, err := p.root.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()) | specialBits(info.Mode()), ModTime: info.ModTime()}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = p.root.Readlink(name); err != nil {
			return err
		}
		return p.tar.WriteHeader(h)
	case !info.Mode().IsRegular():
		return refused(name, "it is a device, a pipe or a socket")
	}
	f, err := p.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	// Another file may have replaced this one before it was opened.
	if info, err = f.Stat(); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return refused(name, "it is a device, a pipe or a socket")
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(p.tar, f, h.Size)
	if errors.Is(err, io.EOF) {
		return refused(name, "it became shorter while it was read")
	}
	return err
}

// refused returns the error for a file that a context must not contain.
func refused(name, why string) error {
	return fault.Newf(fault.Invalid, CodeInvalid, "%.200q of the build context cannot be used: %s", name, why).
		WithHint("leave it out with a line in .dockerignore")
}

// cleanName returns the path of an entry, or an error if the path leads out of the directory.
func cleanName(name string) (string, error) {
	trimmed := strings.TrimSuffix(name, "/")
	if trimmed == "" || path.IsAbs(trimmed) || strings.ContainsRune(trimmed, 0) || len(trimmed) > 4096 || slices.Contains(strings.Split(trimmed, "/"), "..") {
		return "", refused(name, "its name is not a path below the context")
	}
	return path.Clean(trimmed), nil
}
