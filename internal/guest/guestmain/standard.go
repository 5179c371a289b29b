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

// savedAbove is the lowest number for the saved descriptors. It is above the descriptors with a
// fixed meaning.
const savedAbove = 10

// silence redirects the standard streams to /dev/null, so that a later message cannot block on a
// pipe without a reader. It returns duplicates of the original streams.
func silence() (standard, error) {
	var kept [3]int
	for fd := range kept {
		var err error
		if kept[fd], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, savedAbove); err != nil {
			return standard{}, fmt.Errorf("keep descriptor %d: %w", fd, err)
		}
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return standard{}, &fs.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	for fd := range kept {
		if err := unix.Dup3(null, fd, 0); err != nil && null != fd {
			return standard{}, fmt.Errorf("redirect descriptor %d: %w", fd, err)
		}
	}
	streams := standard{in: kept[0], out: kept[1], err: kept[2]}
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
	done := 0
	for done < len(b) {
		n, err := unix.Write(int(d), b[done:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if err := d.wait(unix.POLLOUT); err != nil {
				return done, err
			}
		case err != nil:
			return done, err
		default:
			done += n
		}
	}
	return done, nil
}

func (d descriptor) wait(events int16) error {
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(d), Events: events}}, -1)
	if errors.Is(err, unix.EINTR) {
		return nil
	}
	return err
}
