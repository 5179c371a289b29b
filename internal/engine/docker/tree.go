package docker

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// cover lists the paths of a tree that are emptied and those that are write-protected in the copy.
// Paths are relative to the tree, with links resolved.
type cover struct {
	empty  map[string]bool
	locked map[string]bool
}

// resolveCover resolves the paths of a specification that are in the tree at target.
func resolveCover(root *os.Root, target string, spec engine.Spec) (c cover, err error) {
	c = cover{map[string]bool{}, map[string]bool{}}
	for _, name := range slices.Concat(spec.Hide, spec.Absent) {
		inside, ok := below(target, name)
		if !ok {
			continue
		}
		place, _, err := resolve(root, target, inside)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, errOutside) {
			continue // the path does not exist, so there is nothing to hide
		}
		if err != nil {
			return c, fmt.Errorf("hide %s: %w", name, err)
		}
		c.empty[place] = true
		if slices.Contains(spec.Hide, name) {
			c.locked[place] = true
		}
	}
	for _, name := range spec.ReadOnly {
		inside, ok := below(target, name)
		if !ok {
			continue
		}
		place, linked, err := resolve(root, target, inside)
		if linked || err != nil || place != inside {
			return c, fault.Wrap(err, fault.Invalid, "read_only_invalid",
				fmt.Sprintf("%s cannot be protected: it does not exist, or is reached by a symbolic link", name))
		}
		c.locked[place] = true
	}
	return c, nil
}

// below returns name relative to dir, and reports whether it is below dir.
func below(dir, name string) (string, bool) {
	if !path.IsAbs(name) || path.Clean(name) != name || !strings.HasPrefix(name, dir+"/") {
		return "", false
	}
	return name[len(dir)+1:], true
}

var errOutside = errors.New("the link points outside the tree")

// maxLinks bounds the links of one path, as the kernel does.
const maxLinks = 40

// resolve follows the links of a path as a program in the sandbox would: an absolute link leads to
// the sandbox's files and never to the host's. It returns the resolved path, and reports whether
// there was a link.
func resolve(root *os.Root, target, name string) (place string, linked bool, err error) {
	elements := strings.Split(name, "/") // not resolved yet
	for links := 0; len(elements) > 0; {
		next := path.Join(place, elements[0])
		elements = elements[1:]
		info, err := root.Lstat(next)
		if err != nil {
			return "", linked, err
		}
		if info.Mode().Type() != fs.ModeSymlink {
			place = next
			continue
		}
		linked = true
		if links++; links > maxLinks {
			return "", true, errOutside
		}
		to, err := root.Readlink(next)
		if err != nil {
			return "", true, err
		}
		if !path.IsAbs(to) {
			to = path.Join(target, place, to)
		}
		inside, ok := below(target, path.Clean(to))
		if !ok {
			return "", true, errOutside
		}
		place, elements = "", append(strings.Split(inside, "/"), elements...)
	}
	return place, linked, nil
}

// writeTar writes a tree of this host as a tar in which all files belong to the sandbox's user.
// Hidden files are empty in the tar too, so that their content never leaves this host. The paths of
// the files in the sandbox are written to names, each without the first slash and with a zero byte.
func writeTar(w io.Writer, root *os.Root, target string, c cover, names io.Writer) error {
	archive := tar.NewWriter(w)
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := writeEntry(archive, root, target, name, entry, c.empty[name]); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the file was removed after the directory was read
			}
			return fmt.Errorf("copy %s: %w", name, err)
		}
		if _, err := io.WriteString(names, strings.TrimPrefix(path.Join(target, name), "/")+"\x00"); err != nil {
			return err
		}
		if c.empty[name] && entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return errors.Join(err, archive.Close())
}

// writeEntry writes one file of a tree to a tar.
func writeEntry(archive *tar.Writer, root *os.Root, target, name string, entry fs.DirEntry, empty bool) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	link := ""
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		if link, err = root.Readlink(name); err != nil {
			return err
		}
		// The daemon refuses a relative link that leads out of the unpacked directory. As an
		// absolute link it leads to the same file of the sandbox.
		if !path.IsAbs(link) && strings.HasPrefix(path.Join(path.Dir(name), link), "../") {
			link = path.Join(target, path.Dir(name), link)
		}
	case fs.ModeDir, 0:
	default:
		return nil // sockets and devices of this host are not copied
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name = filepath.ToSlash(name)
	if info.IsDir() {
		header.Name += "/"
	}
	header.Uid, header.Gid, header.Uname, header.Gname = engine.UserID, engine.UserID, "", ""
	header.Format, header.ModTime = tar.FormatPAX, info.ModTime()
	header.AccessTime, header.ChangeTime = header.ModTime, header.ModTime
	if empty {
		header.Size, header.Mode = 0, header.Mode|0o444
	}
	if header.Size == 0 || header.Typeflag != tar.TypeReg {
		return archive.WriteHeader(header)
	}
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	return copyExactly(archive, file, header.Size)
}

// copyExactly copies size bytes from a file that may be changing. It adds zeros if the file is
// shorter, because the header of the tar already states the size.
func copyExactly(w io.Writer, file io.Reader, size int64) error {
	n, err := io.Copy(w, io.LimitReader(file, size))
	if err == nil && n < size {
		_, err = io.CopyN(w, zeros{}, size-n)
	}
	return err
}

// zeros reads as an endless sequence of zero bytes.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
