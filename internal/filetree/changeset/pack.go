package changeset

import (
	"archive/tar"
	"errors"
	"io"
	"strconv"

	"github.com/crannog/crannog/internal/fault"
)

// readPack reads what a guest answered to a PackRequest about paths, in their
// order. Each file is handed to take, with where its path is among them. What
// was not asked for, comes twice or is no plain file is a fault; what is left
// out is not. Of the archive's headers only name and size are believed.
func readPack(r io.Reader, paths []string, b Bounds, take func(i int, size int64, r io.Reader) error) error {
	b = b.OrDefault()
	in := tar.NewReader(r)
	next, count, left := 0, 0, b.Bytes
	for {
		h, err := in.Next()
		if err != nil {
			return packFault(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			if h.PAXRecords[PackEnd] != strconv.Itoa(count) || len(h.PAXRecords) != 1 {
				return packMalformed("its end does not fit")
			}
			break
		}
		// Links, hard links, devices and holes have no business here: links come
		// from the list.
		if h.Typeflag != tar.TypeReg {
			return packMalformed("it has something that is no plain file")
		}
		for next < len(paths) && paths[next] != h.Name {
			next++
		}
		if next == len(paths) {
			return packMalformed("it has a file that was not requested, or one twice")
		}
		if h.Size < 0 || h.Size > b.FileBytes || h.Size > left {
			return fault.New(fault.Exhausted, "changes_too_large", "the changes are larger than what may come out at once").
				WithHint("choose fewer files")
		}
		left -= h.Size
		if err := take(next, h.Size, in); err != nil {
			return err
		}
		next++
		count++
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return packMalformed("something follows the end")
	}
	return nil
}

func packFault(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.Wrap(err, fault.Unavailable, "pack_cut", "the sandbox stopped in the middle of its files")
	}
	return fault.Wrap(err, fault.Unavailable, "pack_malformed", "what the sandbox sent is no archive of its files")
}

func packMalformed(why string) error {
	return fault.New(fault.Unavailable, "pack_malformed", "the sandbox's archive of its files is malformed: "+why)
}
