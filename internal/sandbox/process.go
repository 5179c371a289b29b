package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Process identifies one run of one program on this host. The number alone
// would not do: numbers are used again, and a stranger's process must not keep
// a dead one's sandbox alive.
type Process struct {
	PID int
	// Start is the boot's identity and the start time in ticks since then.
	Start string
}

// ThisProcess identifies the caller.
func ThisProcess() (Process, error) {
	pid := os.Getpid()
	start, err := processStart(pid)
	if err != nil {
		return Process{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// Alive reports whether the process still runs. What cannot be told counts
// as alive, because a sandbox removed under its owner is worse than one that
// waits for the next look.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, err := processStart(p.PID)
	if err != nil {
		// A process that ends while it is looked at answers ESRCH.
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	return start == p.Start
}

func processStart(pid int) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is the program's name in parentheses and may hold
	// anything, also spaces and parentheses, so reading starts behind it.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", fmt.Errorf("process %d: no name in stat", pid)
	}
	// State is the third field of stat, the start time the 22nd.
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("process %d: %d fields in stat", pid, len(fields))
	}
	// A zombie has ended: it holds nothing.
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fs.ErrNotExist
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}
