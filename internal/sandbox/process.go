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

// Process identifies one run of one program on this host. The process ID alone is not enough,
// because IDs are reused: another process with the same ID must not keep a dead process's sandbox
// alive.
type Process struct {
	PID int
	// Start is the boot ID and the start time in ticks since boot.
	Start string
}

// ThisProcess identifies the calling process.
func ThisProcess() (Process, error) {
	pid := os.Getpid()
	start, err := processStart(pid)
	if err != nil {
		return Process{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// Alive reports whether the process still runs. If that cannot be determined, it counts as alive:
// removing a sandbox while its owner runs is worse than removing it at the next check.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, err := processStart(p.PID)
	if err != nil {
		// A process that ends during the read gives ESRCH.
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
	// The second field is the program's name in parentheses and may contain anything, even spaces
	// and parentheses, so parsing starts behind it.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", fmt.Errorf("process %d: no name in stat", pid)
	}
	// State is the third field of stat, the start time the 22nd.
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("process %d: %d fields in stat", pid, len(fields))
	}
	// A zombie has ended and holds no resources.
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fs.ErrNotExist
	}
	return strings.TrimSpace(string(boot)) + "/" + fields[19], nil
}
