package attempts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/capability"
)

// user is the ID of the sandbox's user.
const user = 1000

var tracing = []Attempt{
	// Tracing ends with the attempt's thread.
	{Class: "tracing of processes", Name: "trace-first", Gain: "the first process, and its tokens", run: func(t *Target) error { return trace(t.First) }},
	{Class: "tracing of processes", Name: "read-memory", Gain: "the memory of the first process", Control: badArgument, run: copyMemory(unix.SYS_PROCESS_VM_READV)},
	{Class: "tracing of processes", Name: "write-memory", Gain: "the first process", Control: badArgument, run: copyMemory(unix.SYS_PROCESS_VM_WRITEV)},
	{Class: "tracing of processes", Name: "memory-file", Gain: "the memory of the first process", Control: onlyOpened, run: func(t *Target) error { return openFile(t.first("mem"), unix.O_RDWR) }},
	{Class: "tracing of processes", Name: "take-descriptor", Gain: "a descriptor of the first process", Control: badArgument, run: func(t *Target) error {
		pidfd, err := unix.PidfdOpen(t.First, 0)
		if err != nil {
			return err
		}
		defer unix.Close(pidfd)
		return descriptor(func() (int, error) { return unix.PidfdGetfd(pidfd, 1<<20, 0) })(t)
	}},
	{Class: "tracing of processes", Name: "compare-processes", Gain: "addresses of the kernel's objects", run: func(t *Target) error {
		return errnoOf(unix.Syscall6(unix.SYS_KCMP, uintptr(t.First), uintptr(os.Getpid()), 1, 0, 0, 0))
	}},
	{Class: "tracing of processes", Name: "trace-host-process", Gain: "a process of the host", run: func(t *Target) error { return trace(t.Victim) }},
}

func trace(pid int) error {
	return errnoOf(unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0))
}

func copyMemory(nr uintptr) func(*Target) error {
	return func(t *Target) error {
		buffer := make([]byte, 8)
		local := []unix.Iovec{{Base: &buffer[0], Len: 8}}
		remote := []unix.RemoteIovec{{Base: badPointer, Len: 8}}
		var err error
		if nr == unix.SYS_PROCESS_VM_READV {
			_, err = unix.ProcessVMReadv(t.First, local, remote, 0)
		} else {
			_, err = unix.ProcessVMWritev(t.First, local, remote, 0)
		}
		return err
	}
}

var setUserID = []Attempt{
	{Class: "set-user-ID programs", Name: "set-user-id-copy", Gain: "root by a program of its own", run: func(*Target) error { return setIDCopy(0o4755, "user 0\n") }},
	{Class: "set-user-ID programs", Name: "set-group-id-copy", Gain: "root's group by a program of its own", run: func(*Target) error { return setIDCopy(0o2755, "group 0\n") }},
	{Class: "set-user-ID programs", Name: "file-capabilities", Gain: "capabilities by a program of its own", run: fileCapabilities},
	{Class: "set-user-ID programs", Name: "new-privileges", Gain: "set-user-ID programs that count", run: func(*Target) error {
		set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		if err == nil && set == 1 {
			return unix.EPERM
		}
		return err
	}},
	{Class: "set-user-ID programs", Name: "regain-root", Gain: "root after it was given up", Control: "with root as the saved user", run: func(t *Target) error {
		saved := uintptr(user)
		if t.Control {
			saved = 0
		}
		if err := errnoOf(unix.RawSyscall(unix.SYS_SETRESUID, user, user, saved)); err != nil {
			return err
		}
		return errnoOf(unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0))
	}, refused: []syscall.Errno{unix.EINVAL}},
}

// PrintUser is the argument with which the probe program prints its effective user, group and
// capabilities.
const PrintUser = "who"

// runCopyAsUser changes a copy of this program, runs it as the sandbox's user, and returns its
// output.
func runCopyAsUser(change func(path string) error) (string, error) {
	dir, err := os.MkdirTemp("/var/tmp", "escape-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "copy")
	if err := os.WriteFile(path, self, 0o755); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	if err := change(path); err != nil {
		return "", err
	}
	cmd := exec.Command(path, PrintUser)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	out, err := cmd.Output()
	return string(out), err
}

func setIDCopy(bits uint32, want string) error {
	out, err := runCopyAsUser(func(path string) error { return unix.Chmod(path, bits) })
	if err != nil {
		return err
	}
	// A user other than root owns the copy, so there is nothing to gain.
	if !strings.Contains(out, want) {
		return unix.EPERM
	}
	return nil
}

func fileCapabilities(*Target) error {
	out, err := runCopyAsUser(func(path string) error {
		// Version 2 of the attribute, with CAP_SYS_ADMIN permitted and effective.
		value := make([]byte, 20)
		value[0], value[3] = 1, 2
		value[6] = 1 << (unix.CAP_SYS_ADMIN - 16)
		return unix.Setxattr(path, "security.capability", value, 0)
	})
	if err != nil {
		return err
	}
	if !strings.Contains(out, "capabilities 0000000000200000") {
		return unix.EPERM
	}
	return nil
}

var capabilities = append([]Attempt{
	{Class: "capabilities", Name: "raise-capability", Gain: "rights over the machine", Control: "which it has already", run: func(*Target) error { return capability.Raise(false) }},
	{Class: "capabilities", Name: "raise-ambient", Gain: "rights over the machine for programs that it starts", run: func(*Target) error {
		// This error shows in the next call: only a permitted and inheritable capability can be
		// ambient.
		_ = capability.Raise(true)
		return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
	}},
}, capabilityAttempts(map[string]int{
	"administration": unix.CAP_SYS_ADMIN, "modules": unix.CAP_SYS_MODULE, "raw-io": unix.CAP_SYS_RAWIO, "tracing": unix.CAP_SYS_PTRACE,
	"network-administration": unix.CAP_NET_ADMIN, "raw-network": unix.CAP_NET_RAW, "device-nodes": unix.CAP_MKNOD,
	"read-everything": unix.CAP_DAC_READ_SEARCH, "boot": unix.CAP_SYS_BOOT, "clock": unix.CAP_SYS_TIME, "kernel-log": unix.CAP_SYSLOG,
	"bpf": unix.CAP_BPF,
})...)

// capabilityAttempts returns an attempt for each dangerous capability, which succeeds if the
// process has it.
func capabilityAttempts(list map[string]int) (all []Attempt) {
	for _, name := range []string{"administration", "modules", "raw-io", "tracing", "network-administration", "raw-network", "device-nodes", "read-everything", "boot", "clock", "kernel-log", "bpf"} {
		bit := list[name]
		all = append(all, Attempt{Class: "capabilities", Name: "has-" + name, Gain: "rights over the machine", run: func(*Target) error {
			have, err := effective()
			if err == nil && have&(1<<bit) == 0 {
				return unix.EPERM
			}
			return err
		}})
	}
	return all
}

// effective returns the effective and permitted capabilities of the process.
func effective() (set uint64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":\t")
		if name == "CapEff" || name == "CapPrm" {
			n, err := strconv.ParseUint(value, 16, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %v", line, err)
			}
			set |= n
		}
	}
	return set, err
}

var hostProcesses = []Attempt{
	{Class: "host processes", Name: "see-process", Gain: "the arguments of the host's programs", run: seeProcess},
	{Class: "host processes", Name: "signal-process", Gain: "the end of the host's programs", Control: "with signal 0", run: func(t *Target) error { return unix.Kill(t.Victim, 0) }},
	{Class: "host processes", Name: "hold-process", Gain: "a handle of a process of the host", run: func(t *Target) error {
		return descriptor(func() (int, error) { return unix.PidfdOpen(t.Victim, 0) })(t)
	}},
	{Class: "host processes", Name: "slow-process", Gain: "a program of the host that is slow", Control: "to the priority that it has", run: func(t *Target) error { return unix.Setpriority(unix.PRIO_PROCESS, t.Victim, 0) }},
	{Class: "host processes", Name: "limit-process", Gain: "a program of the host that fails", Control: "only asks", run: func(t *Target) error {
		return unix.Prlimit(t.Victim, unix.RLIMIT_CORE, nil, new(unix.Rlimit))
	}},
	{Class: "host processes", Name: "pin-process", Gain: "a program of the host that is slow", Control: "only asks", run: func(t *Target) error { return unix.SchedGetaffinity(t.Victim, new(unix.CPUSet)) }},
}

func seeProcess(t *Target) error {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, line := range lines {
		// The probe has the mark in its environment, not in its arguments.
		if data, err := os.ReadFile(line); err == nil && bytes.Contains(data, []byte(t.VictimMark)) {
			return nil
		}
	}
	return absentError("no process has the mark")
}
