package changeset

import (
	"archive/tar"
	"errors"
	"io"
	"strconv"

	"github.com/crannog/crannog/internal/fault"
)

// readPack reads a guest's answer to a PackRequest about paths, in their order. It passes each file
// to take, with the index of its path. A file that was not requested, that appears twice or that is
// not a regular file is an error. A missing file is not. Only the name and size in the archive's
// headers are used.
func readPack(r io.Reader, paths []string, b Bounds, take func(i int, size int64, r io.Reader) error) error {
	b = b.OrDefault()
	in := tar.NewReader(r)
	next, count, remaining := 0, 0, b.Bytes
	for {
		h, err := in.Next()
		if err != nil {
			return packFault(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			if h.PAXRecords[PackEnd] != strconv.Itoa(count) || len(h.PAXRecords) != 1 {
				return packMalformed("the number of files is wrong")
			}
			break
		}
		// Symbolic links are in the list of files, so the archive has only regular files.
		if h.Typeflag != tar.TypeReg {
			return packMalformed("it contains something that is not a regular file")
		}
		for next < len(paths) && paths[next] != h.Name {
			next++
		}
		if next == len(paths) {
			return packMalformed("it contains a file that was not requested, or a duplicate")
		}
		if h.Size < 0 || h.Size > b.FileBytes || h.Size > remaining {
			return fault.New(fault.Exhausted, "changes_too_large", "the changes are larger than the limit for one request").
				WithHint("choose fewer files")
		}
		remaining -= h.Size
		if err := take(next, h.Size, in); err != nil {
			return err
		}
		next++
		count++
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return packMalformed("data follows the end")
	}
	return nil
}

// packFault returns the error for an archive that cannot be read.
func packFault(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.Wrap(err, fault.Unavailable, "pack_cut", "the sandbox's archive of its files is truncated")
	}
	return fault.Wrap(err, fault.Unavailable, "pack_malformed", "the sandbox did not send an archive of its files")
}

// packMalformed returns the error for an archive with invalid content.
func packMalformed(why string) error {
	return fault.New(fault.Unavailable, "pack_malformed", "the sandbox's archive of its files is malformed: "+why)
}
