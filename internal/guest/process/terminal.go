package process

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

// terminal is the controlling side of a pseudo-terminal. It also keeps the program's side open
// until the program has ended. Otherwise the terminal would hang up when the program closes its own
// descriptors, although the program may open the terminal again by name.
type terminal struct {
	file  *os.File
	slave int
}

// openTerminal opens both sides. The program's side is a plain descriptor, because it must be
// blocking.
func openTerminal(size *pb.PTY_Size) (*terminal, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	t := &terminal{file: os.NewFile(uintptr(master), "ptmx")}
	if t.slave, err = openSlave(master); err == nil {
		if err = t.resize(size); err == nil {
			return t, nil
		}
		t.release()
	}
	_ = t.file.Close() // the first error is returned
	return nil, err
}

// release closes the program's side.
func (t *terminal) release() { _ = unix.Close(t.slave) }

func openSlave(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlock terminal: %w", err)
	}
	number, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, fmt.Errorf("number of terminal: %w", err)
	}
	name := "/dev/pts/" + strconv.FormatUint(uint64(number), 10)
	slave, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return slave, nil
}

// resize sets the window's size. A request without a size changes nothing.
func (t *terminal) resize(size *pb.PTY_Size) error {
	if size == nil {
		return nil
	}
	raw, err := t.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	window := &unix.Winsize{Row: cells(size.GetRows()), Col: cells(size.GetCols())}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, window)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// cells limits a number to what the kernel accepts.
func cells(n uint32) uint16 { return uint16(min(n, 1<<16-1)) }
