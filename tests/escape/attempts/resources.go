package attempts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// resources are attempts to exceed the limits of the sandbox. The memory comes last, because it may
// end the sandbox.
var resources = []Attempt{
	{Class: "resources", Name: "raise-file-limit", Gain: "more open files than its limit", capability: unix.CAP_SYS_RESOURCE, run: func(*Target) error {
		var have unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
			return err
		}
		return unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: have.Cur, Max: have.Max + 1}, nil)
	}},
	{Class: "resources", Name: "raise-priority", Gain: "processor time of others", run: func(*Target) error { return raisePriority() }},
	{Class: "resources", Name: "real-time-priority", Gain: "all processor time of the host", Control: "of its own thread", run: func(*Target) error {
		return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: 1, Priority: 1}, 0)
	}, refused: unknown},
	{Class: "resources", Name: "real-time-io", Gain: "all input and output of the host", Control: "of its own thread", run: func(*Target) error {
		return errnoOf(unix.Syscall(unix.SYS_IOPRIO_SET, 1, 0, 1<<13))
	}},
	{Class: "resources", Name: "spare-from-memory-killer", Gain: "a host that ends other programs first", capability: unix.CAP_SYS_RESOURCE, run: func(*Target) error {
		return os.WriteFile("/proc/self/oom_score_adj", []byte("-999"), 0)
	}},
	{Class: "resources", Name: "processes", Gain: "a host that can start none", run: func(t *Target) error { return startMany(t.Processes) }},
	{Class: "resources", Name: "disk", Gain: "a host whose disk is full", run: func(t *Target) error { return fill("/var/tmp", t.DiskBytes) }, refused: []syscall.Errno{unix.ENOSPC, unix.EDQUOT}},
	{Class: "resources", Name: "files", Gain: "a host that can make no files", run: func(t *Target) error { return makeMany(t.Files) }, refused: []syscall.Errno{unix.ENOSPC, unix.EDQUOT}},
	{Class: "resources", Name: "shared-memory", Gain: "a host whose memory is full", run: func(t *Target) error { return fill("/dev/shm", t.DiskBytes) }, refused: []syscall.Errno{unix.ENOSPC, unix.EDQUOT}},
	{Class: "resources", Name: Last, Gain: "a host whose memory is full", run: func(t *Target) error {
		memory, err := unix.Mmap(-1, 0, int(t.MemoryBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		return unix.Munmap(memory)
	}, refused: []syscall.Errno{unix.ENOMEM}},
}

// raisePriority asks for more than the process has, because the engine may have been started with a
// raised priority. Getpriority returns 20 minus the nice value.
func raisePriority() error {
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 20-before-5); err != nil {
		return err
	}
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || now <= before {
		return errors.Join(err, unix.EPERM)
	}
	return nil
}

// fill writes a file of a size and removes it.
func fill(dir string, size int64) error {
	f, err := os.CreateTemp(dir, "escape-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	piece := make([]byte, 1<<20)
	for i := range piece {
		piece[i] = byte(i)
	}
	for ; size > 0; size -= int64(len(piece)) {
		if _, err := f.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// makeMany creates a number of files and removes them.
func makeMany(n int) error {
	dir, err := os.MkdirTemp("/var/tmp", "escape-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i := range n {
		f, err := os.Create(filepath.Join(dir, itoa(i)))
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	return nil
}

// Wait is the argument with which the probe program waits for the end of its input.
const Wait = "wait"

// startMany runs a number of processes at the same time.
func startMany(n int) (err error) {
	self, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	var all []*exec.Cmd
	for range n {
		cmd := exec.Command(self, Wait)
		cmd.Stdin = read
		if err = cmd.Start(); err != nil {
			break
		}
		all = append(all, cmd)
	}
	_ = write.Close()
	for _, cmd := range all {
		_ = cmd.Wait() // a process fails if its threads are refused
		if err == nil && !cmd.ProcessState.Success() {
			err = unix.EPERM
		}
	}
	_ = read.Close()
	if errors.Is(err, unix.EAGAIN) {
		return unix.EPERM
	}
	return err
}
