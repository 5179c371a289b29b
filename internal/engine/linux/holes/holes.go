// Package holes owns writing a stream to a host file with holes instead of zeros.
package holes

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// holeSize is the length of the shortest run of zeros that becomes a hole: a page of the cache,
// which is also the unit in which disk space is allocated.
const holeSize = 4096

// pipeBytes is how far a writer may be ahead of its reader. A smaller pipe means more context
// switches.
const pipeBytes = 1 << 20

// CopyError is an error of copying, such as one of the file that is written to. It tells callers of
// Through that the error is not one of the function that they passed, nor of the process for which
// that function opened the pipe.
type CopyError struct{ Err error }

func (e *CopyError) Error() string { return e.Err.Error() }

func (e *CopyError) Unwrap() error { return e.Err }

// Through calls do with a file to write to, and copies what do writes to w. If w is a regular file,
// it gets holes instead of zeros. A sandbox may have files that consist only of holes and are
// larger than its disk, and a tar stores them as zeros: without holes they would fill the host's
// disk before the size is checked.
func Through(w io.Writer, do func(*os.File) error) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	// This is only a hint, and any size works.
	_, _ = unix.FcntlInt(in.Fd(), unix.F_SETPIPE_SZ, pipeBytes)
	copied := make(chan error, 1)
	go func() {
		err := copyHoles(w, out)
		out.Close() // so that a writer gets an error
		copied <- err
	}()
	err = errors.Join(do(in), in.Close())
	if err != nil {
		out.Close() // the rest of the data is not needed
	}
	if failed := <-copied; failed != nil && !errors.Is(failed, os.ErrClosed) {
		return &CopyError{failed} // the first failure, which caused the other one
	}
	return err
}

// copyHoles copies all of r to the file to, starting at its present offset.
func copyHoles(to io.Writer, r io.Reader) error {
	w, ok := to.(*os.File)
	var offset int64
	if ok {
		var err error
		if offset, err = w.Seek(0, io.SeekCurrent); errors.Is(err, unix.ESPIPE) {
			ok = false
		} else if err != nil {
			return err
		}
	}
	if !ok {
		_, err := io.Copy(to, r)
		return err
	}
	buffer := make([]byte, 64*holeSize)
	for {
		n, err := io.ReadFull(r, buffer)
		if failed := writeHoles(w, buffer[:n], offset); failed != nil {
			return failed
		}
		offset += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return w.Truncate(offset)
		}
		if err != nil {
			return err
		}
	}
}

var zeroPage [holeSize]byte

// allZero reports whether b, which has at most holeSize bytes, contains only zeros.
func allZero(b []byte) bool { return bytes.Equal(b, zeroPage[:len(b)]) }

// writeHoles writes the runs of b that are not zeros.
func writeHoles(w *os.File, b []byte, offset int64) error {
	begin := -1 // of the present run, or -1
	for i := 0; begin >= 0 || i < len(b); i += holeSize {
		empty := i >= len(b) || allZero(b[i:min(i+holeSize, len(b))])
		switch {
		case empty && begin >= 0:
			if _, err := w.WriteAt(b[begin:min(i, len(b))], offset+int64(begin)); err != nil {
				return err
			}
			begin = -1
		case !empty && begin < 0:
			begin = i
		}
	}
	return nil
}
