// Package process owns the permanent identity of a host process. With it an engine finds the
// process again after a restart, and never signals another one that reuses the PID.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies one process. Its PID alone may belong to another process later.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, from /proc/PID/stat
}

// ErrGone is returned for a process that has ended.
var ErrGone = errors.New("the process has ended")

// Identify returns the identity of a process that runs or has just ended.
func Identify(pid int) (Process, error) {
	start, _, err := startTicks(pid)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// Check returns nil if exactly this process still runs, and ErrGone if it does not. Any other error
// means that the state is unknown, for example because this program has no descriptor left. A
// zombie does not count as running.
func (p Process) Check() error {
	if p.PID <= 0 || p.Start == 0 {
		return ErrGone
	}
	start, state, err := startTicks(p.PID)
	if err == nil && (start != p.Start || state == "Z" || state == "X") {
		err = ErrGone
	}
	return err
}

// Alive reports whether the process may still run. A process of unknown state counts as alive, so
// that callers do not clean up after a process that runs.
func (p Process) Alive() bool { return !errors.Is(p.Check(), ErrGone) }

// startTicks reads field 22 and the state from /proc/PID/stat. The name in field 2 may contain
// spaces and parentheses, so the fields are counted after the last parenthesis.
func startTicks(pid int) (start uint64, state string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, "", ErrGone
	}
	if err != nil {
		return 0, "", err
	}
	fields := strings.Fields(string(data)[strings.LastIndexByte(string(data), ')')+1:])
	if len(fields) < 20 {
		return 0, "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0], err
}

// Open returns a pidfd of the process.
func (p Process) Open() (*os.File, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "process")
	// The PID may have been reused between the check and the open.
	if err := p.Check(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Kill kills the process and waits until it has ended.
func (p Process) Kill(timeout time.Duration) error {
	file, err := p.Open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill %d: %w", p.PID, err)
	}
	defer file.Close()
	if err := unix.PidfdSendSignal(int(file.Fd()), unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill %d: %w", p.PID, err)
	}
	if !ended(file, timeout) {
		return fmt.Errorf("process %d did not end within %s", p.PID, timeout)
	}
	return nil
}

// retryDelay is the delay before a check without a result is repeated.
const retryDelay = time.Second

// Await returns when the process has ended. It waits in Go's poller and blocks no thread, because a
// server has hundreds of idle sandboxes.
func (p Process) Await() {
	for p.Alive() {
		file, err := p.Open()
		if err == nil {
			err = p.await(file)
			file.Close()
		}
		if err != nil {
			// Without a retry, a program that has run out of descriptors would treat its
			// sandboxes as dead.
			time.Sleep(retryDelay)
		}
	}
}

// await waits until the process behind a pidfd has ended.
func (p Process) await(file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
	})
}

// ended waits until the process behind a pidfd has ended, and reports whether it has.
func ended(file *os.File, timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}
