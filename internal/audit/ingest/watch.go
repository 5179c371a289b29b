package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watch reports which files in a few directories have grown. It uses one inotify descriptor for all
// of them, because the kernel limits the number of descriptors for each user.
type watch struct{ f *os.File }

func newWatch(dirs []string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_ONLYDIR); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), unix.Close(fd))
		}
	}
	return &watch{os.NewFile(uintptr(fd), "inotify")}, nil
}

func (w *watch) close() error { return w.f.Close() }

// run calls changed with the name of each file that has grown, or with "" if events were lost,
// until the watch is closed.
func (w *watch) run(changed func(file string)) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			return err
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			mask := binary.NativeEndian.Uint32(buf[at+4:])
			length := int(binary.NativeEndian.Uint32(buf[at+12:]))
			name, _, _ := bytes.Cut(buf[at+unix.SizeofInotifyEvent:min(at+unix.SizeofInotifyEvent+length, n)], []byte{0})
			at += unix.SizeofInotifyEvent + length
			switch {
			case mask&unix.IN_Q_OVERFLOW != 0:
				changed("")
			case len(name) > 0:
				changed(string(name))
			}
		}
	}
}
