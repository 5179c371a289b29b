package guestmain

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// standard has the descriptors that the engine passed to the guest, for its configuration and its
// answers. After a restore they refer to the new instance's streams.
type standard struct{ in, out, err int }

// minSavedFD is the lowest number for the saved descriptors. It is above the descriptors with a
// fixed meaning.
const minSavedFD = 10

// replaceStandardStreams redirects the standard streams to /dev/null, so that a later message
// cannot block on a pipe without a reader. It returns duplicates of the original streams.
func replaceStandardStreams() (standard, error) {
	var saved [3]int
	for fd := range saved {
		var err error
		if saved[fd], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minSavedFD); err != nil {
			return standard{}, fmt.Errorf("save descriptor %d: %w", fd, err)
		}
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return standard{}, &fs.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	for fd := range saved {
		if err := unix.Dup3(null, fd, 0); err != nil && null != fd {
			return standard{}, fmt.Errorf("redirect descriptor %d: %w", fd, err)
		}
	}
	streams := standard{in: saved[0], out: saved[1], err: saved[2]}
	if null > 2 {
		return streams, unix.Close(null)
	}
	return streams, nil
}

// descriptor reads and writes a descriptor without the runtime's poller, because it may refer to
// another file after a restore.
type descriptor int

// Read implements io.Reader.
func (d descriptor) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if err := d.wait(unix.POLLIN); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, err
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer.
func (d descriptor) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		n, err := unix.Write(int(d), b[written:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if err := d.wait(unix.POLLOUT); err != nil {
				return written, err
			}
		case err != nil:
			return written, err
		default:
			written += n
		}
	}
	return written, nil
}

// wait waits until the descriptor is ready for events.
func (d descriptor) wait(events int16) error {
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(d), Events: events}}, -1)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}
