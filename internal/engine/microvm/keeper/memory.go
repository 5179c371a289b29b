package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// newMemory returns a file for a machine's memory, which is in this host's memory. Its size cannot
// change, so a machine that is taken over cannot use it to exceed its limits.
func newMemory(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("machine", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return nil, errors.Join(os.NewSyscallError("seal", err), f.Close())
	}
	return f, nil
}

// pageSize is the unit in which memory is copied. A page of zeros is not written.
const pageSize = 4096

// CopyPages copies a range of a file to another file, in which that range has only zeros, and leaves
// holes where there are zeros. Both offsets are multiples of the size of a page.
func CopyPages(to *os.File, toOffset int64, from *os.File, fromOffset, size int64) error {
	buf := make([]byte, 256*pageSize)
	for at, last := fromOffset, fromOffset+size; at < last; {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only zeros follow
		}
		if err != nil {
			return fmt.Errorf("find the data: %w", err)
		}
		end, err := unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("find the data: %w", err)
		}
		at = max(at, start/pageSize*pageSize)
		for end = min(end, last); at < end; {
			part := buf[:min(int64(len(buf)), end-at)]
			if _, err := io.ReadFull(io.NewSectionReader(from, at, int64(len(part))), part); err != nil {
				return fmt.Errorf("read the pages: %w", err)
			}
			if err := writePages(to, part, toOffset+at-fromOffset); err != nil {
				return err
			}
			at += int64(len(part))
		}
	}
	return nil
}

// zeros is a page of zeros.
var zeros [pageSize]byte

// writePages writes the pages of data that have other bytes than zeros, adjacent ones together.
func writePages(to *os.File, data []byte, at int64) error {
	first := -1 // of the adjacent pages
	for i := 0; ; i += pageSize {
		over := i >= len(data)
		if over || bytes.Equal(data[i:min(i+pageSize, len(data))], zeros[:min(pageSize, len(data)-i)]) {
			if first >= 0 {
				if _, err := to.WriteAt(data[first:min(i, len(data))], at+int64(first)); err != nil {
					return err
				}
			}
			first = -1
			if over {
				return nil
			}
		} else if first < 0 {
			first = i
		}
	}
}
