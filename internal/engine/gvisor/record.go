package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/cgroup"
)

// record is what a box's directory says about it. The first version is
// written before anything is made, so that a crash at any step leaves enough
// to find and free the rest.
type record struct {
	ID      string        `json:"id"`
	Kernel  string        `json:"kernel"` // what gVisor calls it
	Created time.Time     `json:"created"`
	Creator process       `json:"creator"`
	Limits  engine.Limits `json:"limits"`
	// Spec is what the box was made of, but for its guest's configuration.
	Spec   *engine.Spec  `json:"spec,omitempty"`
	Group  *cgroup.Group `json:"group,omitempty"`
	Sentry process       `json:"sentry"`
	Gofer  process       `json:"gofer"`
	Socket string        `json:"socket"` // gVisor's control socket
	Exit   *engine.Exit  `json:"exit,omitempty"`
}

// process names a process for good: a PID alone may be another's tomorrow.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, from /proc/PID/stat
}

func processOf(pid int) process {
	p := process{PID: pid}
	p.Start, _ = startTicks(pid)
	return p
}

// suffix names the process at the end of a file's name.
func (p process) suffix() string { return fmt.Sprintf(".%d-%d", p.PID, p.Start) }

// cutSuffix parts a file's name from the process at its end. One that names
// none is of one that does not live.
func cutSuffix(name string) (string, process) {
	name, text, _ := strings.Cut(name, ".")
	pid, start, _ := strings.Cut(text, "-")
	var p process
	p.PID, _ = strconv.Atoi(pid)
	p.Start, _ = strconv.ParseUint(start, 10, 64)
	return name, p
}

// alive tells whether exactly this process still runs. A zombie does not.
func (p process) alive() bool {
	if p.PID <= 0 || p.Start == 0 {
		return false
	}
	start, state := startTicks(p.PID)
	return start == p.Start && state != "Z" && state != "X"
}

// startTicks reads field 22 and the state from /proc/PID/stat. The name in
// field 2 may hold spaces and parentheses, so the fields are counted from the
// last one.
func startTicks(pid int) (uint64, string) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, ""
	}
	i := strings.LastIndexByte(string(data), ')')
	if i < 0 {
		return 0, ""
	}
	fields := strings.Fields(string(data)[i+1:])
	if len(fields) < 20 {
		return 0, ""
	}
	start, _ := strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0]
}

// open returns a descriptor for the process, or -1 if it is gone.
func (p process) open() int {
	if !p.alive() {
		return -1
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1
	}
	// The number may have changed hands between the look and the open.
	if !p.alive() {
		unix.Close(fd)
		return -1
	}
	return fd
}

// kill ends the process and waits until it is gone.
func (p process) kill(patience time.Duration) error {
	fd := p.open()
	if fd < 0 {
		return nil
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

const recordName = "box.json"

func readRecord(dir string) (record, error) {
	var rec record
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, fmt.Errorf("record: %w", err)
	}
	if rec.Kernel == "" {
		rec.Kernel = rec.ID // written before kernels had names of their own
	}
	return rec, nil
}

// write replaces the record in one step, so that a reader or a crash never
// sees half of one.
func (r record) write(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	f, err := os.CreateTemp(dir, recordName+".*")
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("record: %w", err)
	}
	return os.Rename(f.Name(), filepath.Join(dir, recordName))
}
