package copyfiles

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/layer"
)

// Archive is a tar that ADD unpacks.
type Archive struct{ item Item }

// TakeArchives removes the tars from a selection and returns them. They are recognised by their
// content, not by their names.
func (s *Selection) TakeArchives() (list []Archive, err error) {
	var others []Item
	for _, i := range s.Items {
		if i.packed || i.info == nil || !i.info.Mode().IsRegular() || i.Name == "" || strings.Contains(i.Name, "/") || s.Whole {
			others = append(others, i)
			continue
		}
		unpack, err := isArchive(i)
		if err != nil {
			return nil, err
		}
		if unpack {
			list = append(list, Archive{i})
		} else {
			others = append(others, i)
		}
	}
	s.Items, s.Several = others, s.Several || len(list) > 0
	return list, nil
}

// xz is the magic number of xz.
var xz = []byte{0xfd, '7', 'z', 'X', 'Z', 0}

// isArchive reports whether a file is a tar, possibly compressed.
func isArchive(i Item) (bool, error) {
	r, err := i.uncompressed()
	if err != nil {
		return false, err
	}
	defer r.Close()
	_, err = tar.NewReader(r).Next()
	return err == nil, nil
}

type readCloser struct {
	io.Reader
	close func() error
}

// Close implements io.Closer.
func (r readCloser) Close() error { return r.close() }

// uncompressed opens a file and uncompresses its content.
func (i Item) uncompressed() (io.ReadCloser, error) {
	f, err := i.open()
	if err != nil {
		return nil, err
	}
	head := bufio.NewReader(f)
	magic, _ := head.Peek(6)
	switch {
	case bytes.HasPrefix(magic, []byte("BZh")):
		return readCloser{bzip2.NewReader(head), f.Close}, nil
	case bytes.HasPrefix(magic, xz):
		f.Close()
		return nil, fault.Newf(fault.Unsupported, "build_archive_xz", "ADD cannot unpack %.200q: xz is not supported", i.from).
			WithHint("compress it with gzip or zstd, or unpack it in a RUN")
	}
	plain, err := layer.Uncompress(head)
	if err != nil {
		return readCloser{bytes.NewReader(nil), f.Close}, nil //nolint:nilerr // a file that cannot be uncompressed is a plain file
	}
	return readCloser{plain, func() error { return errors.Join(plain.Close(), f.Close()) }}, nil
}

// Write writes the files of the archive as a layer. Entries that lead out of the destination, and
// devices, are refused.
func (a Archive) Write(w *layertar.Writer, d Destination) error {
	out := &writer{w: w, d: d, made: map[string]bool{"": true, ".": true}}
	target := strings.TrimPrefix(path.Clean("/"+d.Path), "/")
	if d.Over != nil {
		at, _, err := d.Over(target)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		target = at
	}
	if err := out.above(target); err != nil {
		return err
	}
	r, err := a.item.uncompressed()
	if err != nil {
		return err
	}
	defer r.Close()
	for entries := tar.NewReader(r); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.Wrap(err, fault.Invalid, "build_archive_invalid", "an archive that ADD unpacks is incomplete")
		}
		if err := out.unpack(target, *h, entries); err != nil {
			return err
		}
	}
}

// unpack writes one entry of an archive.
func (o *writer) unpack(target string, h tar.Header, content io.Reader) error {
	if slices.Contains(strings.Split(h.Name, "/"), "..") || strings.HasPrefix(path.Base(h.Name), ".wh.") {
		return fault.Newf(fault.Invalid, "build_archive_invalid", "the archive has the entry %.200q, which leads out of it", h.Name)
	}
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if name == "" || h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	to := path.Join(target, name)
	if err := o.above(path.Dir(to)); err != nil {
		return err
	}
	if o.d.Owned {
		h.Uid, h.Gid = o.d.UID, o.d.GID
	}
	h.Name = to
	switch h.Typeflag {
	case tar.TypeDir:
		o.made[to] = true
		h.Name += "/"
		return o.w.Add(h, nil)
	case tar.TypeSymlink:
		return o.w.Add(h, nil)
	case tar.TypeLink:
		h.Linkname = path.Join(target, strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"))
		return o.w.Add(h, nil)
	case tar.TypeReg, tar.TypeGNUSparse:
		h.Typeflag = tar.TypeReg
		return o.w.Add(h, content)
	}
	return fault.Newf(fault.Invalid, "build_archive_invalid", "the archive has the entry %.200q, which is a device or a pipe", h.Name)
}
