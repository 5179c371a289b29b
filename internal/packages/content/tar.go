package content

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
)

// tar inspects a tar archive, which may be compressed.
func (i *inspection) tar() error {
	if i.hasZip() {
		i.add(Unreadable, "the file", "is a tar archive and a zip archive at once")
	}
	in, err := i.decompressed()
	if err != nil {
		return err
	}
	r := tar.NewReader(metered{in, i})
	for {
		h, err := r.Next()
		if errors.Is(err, tar.ErrInsecurePath) {
			err = nil // judged below
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = i.tarEntry(h, r)
		}
		if err != nil {
			return err
		}
	}
	if i.entries == 0 {
		i.add(Unreadable, "the archive", "is empty")
	}
	// Some clients unpack what follows the last entry too. Errors there concern no entry.
	if _, err := io.Copy(io.Discard, metered{in, i}); errors.Is(err, errStop) {
		return err
	}
	return nil
}

// decompressed returns a reader of the unpacked tar archive.
func (i *inspection) decompressed() (io.Reader, error) {
	in := io.NewSectionReader(i.from, 0, i.size)
	magic := make([]byte, 3)
	if _, err := in.ReadAt(magic, 0); err != nil {
		return nil, err
	}
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return gzip.NewReader(in)
	case bytes.Equal(magic, []byte("BZh")):
		return bzip2.NewReader(in), nil
	default:
		return in, nil // Any other compression is no tar archive, which is a finding.
	}
}

func (i *inspection) tarEntry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := i.entry(h.Size); err != nil {
		return err
	}
	if !i.name(h.Name) {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return i.symlink(h.Name, h.Linkname)
	case tar.TypeLink:
		if leaves(h.Linkname) != "" {
			i.add(Escape, h.Name, "is a link that leads out of the package")
		}
		return nil
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		i.add(Escape, h.Name, "is a device or a pipe")
		return nil
	case tar.TypeDir:
		return nil
	}
	const setIDs = 0o6000
	if h.Mode&setIDs != 0 {
		i.add(Escape, h.Name, "runs with the rights of its owner")
	}
	limit := int64(headSize)
	if i.isManifest(h.Name) {
		limit = maxManifest
	}
	head, err := io.ReadAll(io.LimitReader(r, limit))
	if err != nil {
		return err
	}
	if i.isManifest(h.Name) {
		i.manifest(head)
	}
	i.executable(h.Name, head, h.Size)
	return nil
}

// hasZip reports whether the file ends like a zip archive. Attack: pip looks for the end of a zip
// archive first, and would unpack other files than those that were inspected.
func (i *inspection) hasZip() bool {
	const (
		record     = 22
		maxComment = 1<<16 - 1
	)
	tail := make([]byte, min(i.size, record+maxComment))
	start := i.size - int64(len(tail))
	if n, err := i.from.ReadAt(tail, start); n < len(tail) && err != nil {
		return false
	}
	for rest := tail; ; {
		at := bytes.LastIndex(rest, []byte("PK\x05\x06"))
		if at < 0 {
			return false
		}
		if end := tail[at:]; len(end) >= record {
			size, offset := int64(binary.LittleEndian.Uint32(end[12:])), int64(binary.LittleEndian.Uint32(end[16:]))
			const inZip64 = 1<<32 - 1
			if size+offset <= start+int64(at) || size == inZip64 || offset == inZip64 {
				return true
			}
		}
		rest = rest[:at]
	}
}
