package volume

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// WriteTar writes a file or a directory as a tar. The names in it begin with the last element of
// the path; those of the whole volume begin with ".". Pipes, sockets and devices are left out.
func (f *Files) WriteTar(name string, to io.Writer) error {
	top, err := f.Stat(name)
	if err != nil {
		return err
	}
	start, above := top.Name, strings.TrimSuffix(path.Dir(top.Path), "/")
	if top.Path == "/" {
		start, above = ".", ""
	}
	w := tar.NewWriter(to)
	add := func(e Entry) error {
		inside := strings.TrimPrefix(strings.TrimPrefix(e.Path, above), "/")
		if start == "." {
			inside = path.Join(start, inside)
		}
		return f.addTo(w, e, inside)
	}
	if err := add(top); err != nil {
		return err
	}
	if top.Type == Directory {
		if err := f.walk(name, -1, add); err != nil {
			return err
		}
	}
	return w.Close()
}

// addTo adds one entry. A file that a sandbox changes at the same time has the length that it had
// when it was opened.
func (f *Files) addTo(w *tar.Writer, e Entry, inside string) error {
	head := &tar.Header{Name: inside, Mode: int64(e.Mode), Uid: int(e.UID), Gid: int(e.GID), ModTime: e.Modified.Truncate(time.Second)}
	switch e.Type {
	case Directory:
		head.Typeflag, head.Name = tar.TypeDir, inside+"/"
		return w.WriteHeader(head)
	case Symlink:
		head.Typeflag, head.Linkname = tar.TypeSymlink, e.Target
		return w.WriteHeader(head)
	case Regular:
	default:
		return nil
	}
	file, err := f.Read(e.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	head.Typeflag, head.Size = tar.TypeReg, info.Size()
	if err := w.WriteHeader(head); err != nil {
		return err
	}
	n, err := io.Copy(w, io.LimitReader(file, head.Size))
	if err == nil && n < head.Size {
		_, err = io.CopyN(w, zeros{}, head.Size-n) // the file became shorter
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// ReadTar stores the files of a tar in a directory, which it creates. Existing files are replaced.
// It refuses hard links, devices, and names that leave the directory.
func (f *Files) ReadTar(name string, from io.Reader) error {
	if err := f.MakeDir(name, Attributes{}, true); err != nil {
		return err
	}
	r := tar.NewReader(from)
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.Wrap(err, fault.Invalid, "volume_tar_invalid", "the files are not a valid tar")
		}
		rel, err := clean(head.Name)
		if err != nil {
			return err
		}
		if err := f.take(r, head, path.Join(name, rel)); err != nil {
			return err
		}
	}
}

func (f *Files) take(r io.Reader, head *tar.Header, at string) error {
	mode := uint32(head.Mode) & permissions
	if head.Typeflag != tar.TypeDir {
		if err := f.MakeDir(path.Dir(at), Attributes{}, true); err != nil {
			return err
		}
	}
	switch head.Typeflag {
	case tar.TypeDir:
		return f.MakeDir(at, Attributes{Mode: &mode}, true)
	case tar.TypeReg:
		return f.Write(at, r, Attributes{Mode: &mode}, true)
	case tar.TypeSymlink:
		if err := f.Remove(at); err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
		return f.link(at, head.Linkname)
	}
	return fault.Newf(fault.Invalid, "volume_tar_invalid", "%.200q is neither a file, a directory nor a symbolic link", head.Name)
}
