package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Machine limits how many sandboxes the processes of one user start at once on this machine:
// servers, commands and tests. It is a directory with a file for each slot, which a process locks
// while it starts a sandbox, and a file for each ticket, which a process locks while it waits. The
// kernel drops the locks of a process that dies, so none is left behind.
type Machine struct {
	dir       string
	slots     int
	stallTime time.Duration // after this time without progress, other processes count as stopped
	drawn     atomic.Int64  // tickets of this process
}

const (
	slotPrefix   = "slot-"
	ticketPrefix = "ticket-"
	// A waiting process polls after minPoll first, and increases the time between polls to maxPoll.
	minPoll = 2 * time.Millisecond
	maxPoll = 20 * time.Millisecond
	// stallTimeout is longer than a start may take.
	stallTimeout = 2 * time.Minute
)

// MachineDir returns the directory of the current user's Machine.
func MachineDir() string {
	if os.Geteuid() == 0 {
		return "/run/crannog/starts"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "crannog", "starts")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("crannog-%d-starts", os.Geteuid()))
}

// OpenMachine opens a Machine's directory, and creates it if it does not exist.
func OpenMachine(dir string, slots int) (*Machine, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("slots for starts: %w", err)
	}
	// If the parent is writable for all, another user could have created the directory and could
	// hold every slot for ever.
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, fmt.Errorf("slots for starts: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil, fmt.Errorf("slots for starts: %s is not a directory that only this user can write", dir)
	}
	return &Machine{dir: dir, slots: max(1, slots), stallTime: stallTimeout}, nil
}

// acquire waits for a slot, and calls reportAhead with the number of tickets that are ahead.
// Tickets are served in the order in which they were drawn. The returned function gives the slot
// back. If no ticket moves for a long time, other processes are stopped, for example by a debugger.
// Then acquire returns without a slot, so that they do not block this process as well.
func (m *Machine) acquire(ctx context.Context, reportAhead func(ahead int)) (release func(), err error) {
	if release := m.try(); release != nil {
		return release, nil
	}
	ticket, err := m.drawTicket()
	if err != nil {
		return nil, err
	}
	defer ticket.end()
	wait := minPoll
	timer := time.NewTimer(wait)
	defer timer.Stop()
	last, moved := -1, time.Now()
	for {
		ahead, err := m.ahead(ticket.name)
		if err != nil {
			return nil, err
		}
		reportAhead(ahead)
		if ahead != last {
			last, moved = ahead, time.Now()
		} else if time.Since(moved) > m.stallTime {
			return func() {}, nil
		}
		if ahead == 0 {
			if release := m.takeSlot(); release != nil {
				return release, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-timer.C:
		}
		wait = min(wait*3/2, maxPoll)
		timer.Reset(wait)
	}
}

// try takes a slot if one is free and no process waits, and returns nil
// otherwise.
func (m *Machine) try() (release func()) {
	if ahead, err := m.ahead(""); ahead > 0 || err != nil {
		return nil
	}
	return m.takeSlot()
}

// takeSlot locks a free slot, or returns nil if there is none.
func (m *Machine) takeSlot() (release func()) {
	for i := range m.slots {
		path := filepath.Join(m.dir, fmt.Sprintf("%s%d", slotPrefix, i))
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil
		}
		if lock(fd) == nil {
			return func() { _ = unix.Close(fd) } // this drops the lock
		}
		_ = unix.Close(fd)
	}
	return nil
}

func lock(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }

// ticket is a place in the machine's queue.
type ticket struct {
	dir, name string
	fd        int
}

// drawTicket creates a ticket. It locks the file before the file has a name, so that no other
// process mistakes it for a ticket of a dead process.
func (m *Machine) drawTicket() (*ticket, error) {
	fd, err := unix.Open(m.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ticket for a start: %w", err)
	}
	var now unix.Timespec
	if err = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err == nil {
		err = lock(fd)
	}
	t := &ticket{dir: m.dir, fd: fd, name: fmt.Sprintf("%s%020d-%d-%d", ticketPrefix, now.Nano(), os.Getpid(), m.drawn.Add(1))}
	if err == nil {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, filepath.Join(t.dir, t.name), unix.AT_SYMLINK_FOLLOW)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ticket for a start: %w", err), unix.Close(fd))
	}
	return t, nil
}

// end gives the ticket back. A file that remains has no lock, and is removed by the next process
// that reads the directory.
func (t *ticket) end() {
	_ = os.Remove(filepath.Join(t.dir, t.name))
	_ = unix.Close(t.fd)
}

// ahead counts the tickets that are older than the named one, or all tickets if the name is "". It
// removes tickets of dead processes.
func (m *Machine) ahead(own string) (int, error) {
	dir, err := os.Open(m.dir)
	if err != nil {
		return 0, fmt.Errorf("slots for starts: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return 0, fmt.Errorf("slots for starts: %w", err)
	}
	n := 0
	for _, name := range names {
		if strings.HasPrefix(name, ticketPrefix) && (own == "" || name < own) && isHeld(filepath.Join(m.dir, name)) {
			n++
		}
	}
	return n, nil
}

// isHeld reports whether a ticket's process is alive, and removes the ticket if it is not.
func isHeld(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false // its process has removed it
	}
	defer unix.Close(fd)
	if lock(fd) != nil {
		return true
	}
	_ = os.Remove(path)
	return false
}
