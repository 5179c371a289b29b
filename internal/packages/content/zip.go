package content

import (
	"archive/zip"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"slices"
)

// maxDirectory limits what the directory of a zip may have, because all of it is held in memory.
const maxDirectory = 16 << 20

// localHeader is the minimum size of what precedes the content of an entry.
const localHeader = 30

// zip inspects a zip archive.
func (i *inspection) zip() error {
	i.from.limited, i.from.left = true, maxDirectory
	z, err := zip.NewReader(i.from, i.size)
	i.from.limited = false
	switch {
	case errors.Is(err, errBudget):
		return i.bomb("has a directory that is too large")
	case errors.Is(err, zip.ErrInsecurePath): // judged below
	case err != nil:
		return err
	}
	if len(z.File) == 0 {
		i.add(Unreadable, "the archive", "is empty")
	}
	if err := i.spread(z.File); err != nil {
		return err
	}
	for _, f := range z.File {
		if err := i.zipEntry(f); err != nil {
			return err
		}
	}
	return nil
}

// spread checks the sizes of all entries before any is unpacked, and that no two share their
// content. Attack: entries that overlap unpack a few bytes to any size.
func (i *inspection) spread(all []*zip.File) error {
	type span struct{ from, to int64 }
	spans := make([]span, 0, min(len(all), maxEntries))
	for _, f := range all {
		if f.UncompressedSize64 > maxUnpacked || f.CompressedSize64 > uint64(i.size) {
			return i.bomb("has an entry of an impossible size")
		}
		if err := i.entry(int64(f.UncompressedSize64)); err != nil {
			return err
		}
		at, err := f.DataOffset()
		if err != nil {
			return err
		}
		spans = append(spans, span{at - localHeader, at + int64(f.CompressedSize64)})
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	for n := 1; n < len(spans); n++ {
		if spans[n].from < spans[n-1].to {
			return i.bomb("has entries that overlap")
		}
	}
	return nil
}

func (i *inspection) zipEntry(f *zip.File) error {
	named := i.name(f.Name)
	mode := f.Mode()
	if named && mode.Type()&(fs.ModeDevice|fs.ModeCharDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		i.add(Escape, f.Name, "is a device or a pipe")
	}
	if mode.IsRegular() && mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		i.add(Escape, f.Name, "runs with the rights of its owner")
	}
	const encrypted = 1
	if f.Flags&encrypted != 0 {
		i.add(Unreadable, f.Name, "is encrypted")
		return nil
	}
	head, err := i.unpack(f)
	switch {
	case errors.Is(err, errStop) || i.from.err != nil:
		return err
	case errors.Is(err, zip.ErrFormat):
		i.add(Bomb, f.Name, "is larger than the directory says")
		return nil
	case err != nil:
		i.add(Unreadable, f.Name, "cannot be unpacked")
		return nil
	}
	if mode&fs.ModeSymlink != 0 {
		return i.symlink(f.Name, string(head))
	}
	if mode.IsRegular() {
		i.executable(f.Name, head, int64(f.UncompressedSize64))
	}
	return nil
}

// unpack reads all of an entry, so that its size and its checksum are known to be true. It returns
// its beginning.
func (i *inspection) unpack(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	in := metered{r, i}
	head, err := io.ReadAll(io.LimitReader(in, headSize))
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	return head, err
}
