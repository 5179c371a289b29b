package gvisor

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

// process identifies a process permanently: its PID alone may belong to another one later.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, from /proc/PID/stat
}

// identify names a process that runs, or has run until just now.
func identify(pid int) (process, error) {
	start, _, err := startTicks(pid)
	if err != nil {
		return process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return process{PID: pid, Start: start}, nil
}

// suffix names the process at the end of a file's name.
func (p process) suffix() string { return fmt.Sprintf(".%d-%d", p.PID, p.Start) }

// cutSuffix parts a file's name from the process at its end. A name without one counts as that of a
// process that does not live.
func cutSuffix(name string) (string, process) {
	name, text, _ := strings.Cut(name, ".")
	pid, start, _ := strings.Cut(text, "-")
	var p process
	p.PID, _ = strconv.Atoi(pid)
	p.Start, _ = strconv.ParseUint(start, 10, 64)
	return name, p
}

// errGone is returned for a process that has ended.
var errGone = errors.New("the process has ended")

// look returns nil if exactly this process still runs, and errGone if it does not. Any other error
// means that this cannot be determined, for example because this program has no descriptor left. A
// zombie does not run.
func (p process) look() error {
	if p.PID <= 0 || p.Start == 0 {
		return errGone
	}
	start, state, err := startTicks(p.PID)
	if err == nil && (start != p.Start || state == "Z" || state == "X") {
		err = errGone
	}
	return err
}

// alive reports whether the process may still run. A process of unknown state counts
// as alive, so that callers do not clean up after a process that runs.
func (p process) alive() bool { return !errors.Is(p.look(), errGone) }

// startTicks reads field 22 and the state from /proc/PID/stat. The name in
// field 2 may hold spaces and parentheses, so the fields are counted from the
// last one.
func startTicks(pid int) (start uint64, state string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, "", errGone
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

// open returns a descriptor for the process.
func (p process) open() (int, error) {
	if err := p.look(); err != nil {
		return -1, err
	}
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return -1, errGone
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd: %w", err)
	}
	// The PID may have been reused between the check and the open.
	if err := p.look(); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// kill ends the process and waits until it is gone.
func (p process) kill(patience time.Duration) error {
	fd, err := p.open()
	if errors.Is(err, errGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill %d: %w", p.PID, err)
	}
	if !waitPidfd(fd, patience) {
		return fmt.Errorf("process %d does not end", p.PID)
	}
	return nil
}

// waitPidfd waits until the process behind fd has ended.
func waitPidfd(fd int, patience time.Duration) bool {
	deadline := time.Now().Add(patience)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return true
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}
