package buildcontext

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/crannog/crannog/internal/fault"
)

// Limits bound the size of a context.
type Limits struct {
	Entries int
	Bytes   int64
}

// DefaultLimits apply unless an operator sets others.
var DefaultLimits = Limits{Entries: 1_000_000, Bytes: 16 << 30}

// Unpack unpacks a tar of Pack, or of another client, into an empty directory. An entry is never
// written through a link: os.Root refuses a link that leads out, and no entry replaces an existing
// one.
func Unpack(ctx context.Context, r io.Reader, dir string, limits Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	entries := tar.NewReader(r)
	remaining := limits.Bytes
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.Wrap(err, fault.Invalid, CodeInvalid, "the build context is not a complete tar archive")
		}
		if remaining -= h.Size; n >= limits.Entries || remaining < 0 {
			return fault.Newf(fault.Exhausted, "build_context_large", "the build context has more than %d files or %d bytes", limits.Entries, limits.Bytes).
				WithHint("leave files out with .dockerignore")
		}
		if err := unpackOne(root, h, entries); err != nil {
			return err
		}
	}
}

// unpackOne unpacks one entry.
func unpackOne(root *os.Root, h *tar.Header, content io.Reader) error {
	name, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return refused(h.Name, fmt.Sprintf("its directory cannot be created: %v", err))
		}
	}
	mode := os.FileMode(h.Mode & 0o777) //nolint:gosec // nine bits
	for bit, value := range map[os.FileMode]int64{os.ModeSetuid: 0o4000, os.ModeSetgid: 0o2000, os.ModeSticky: 0o1000} {
		if h.Mode&value != 0 {
			mode |= bit
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		err = root.MkdirAll(name, 0o755)
		if err == nil {
			// The owner must be able to enter the directory in order to remove it.
			err = root.Chmod(name, mode|0o700)
		}
	case tar.TypeSymlink:
		return entryError(h.Name, root.Symlink(h.Linkname, name))
	case tar.TypeLink:
		return entryError(h.Name, link(root, h.Linkname, name))
	case tar.TypeReg:
		err = writeFile(root, name, mode, content)
	default:
		return refused(h.Name, "it is a device, a pipe or a link of an unknown kind")
	}
	if err != nil {
		return entryError(h.Name, err)
	}
	return entryError(h.Name, root.Chtimes(name, h.ModTime, h.ModTime))
}

// entryError returns err as an error about a file of the context.
func entryError(name string, err error) error {
	if err == nil {
		return nil
	}
	return refused(name, err.Error())
}

// link creates a hard link to a file that was unpacked before. A link to a link could lead anywhere
// once it is followed, so only regular files are linked.
func link(root *os.Root, target, name string) error {
	from, err := cleanName(target)
	if err != nil {
		return err
	}
	info, err := root.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is a link to %.200q, which is not a regular file", target)
	}
	return root.Link(from, name)
}

func writeFile(root *os.Root, name string, mode os.FileMode, content io.Reader) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}
