package attempts

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var kernelCode = []Attempt{
	{Class: "kernel modules and kexec", Name: "init-module", Gain: "code in the kernel", Control: badArgument, run: trySyscall(unix.SYS_INIT_MODULE, badPointer, 1, badPointer)},
	{Class: "kernel modules and kexec", Name: "finit-module", Gain: "code in the kernel", Control: badArgument, run: trySyscall(unix.SYS_FINIT_MODULE, badDescriptor, badPointer, 0)},
	{Class: "kernel modules and kexec", Name: "delete-module", Gain: "a kernel without one of its parts", Control: badArgument, run: trySyscall(unix.SYS_DELETE_MODULE, badPointer, 0)},
	{Class: "kernel modules and kexec", Name: "kexec-load", Gain: "another kernel", Control: badArgument, run: trySyscall(unix.SYS_KEXEC_LOAD, 0, 99, badPointer, badDescriptor)},
	{Class: "kernel modules and kexec", Name: "kexec-file-load", Gain: "another kernel", Control: badArgument, run: trySyscall(unix.SYS_KEXEC_FILE_LOAD, badDescriptor, badDescriptor, 0, 0, 0xffff)},
}

const adjustTick = 0x4000 // ADJ_TICK

var machine = []Attempt{
	{Class: "machine settings", Name: "reboot", Gain: "the end of everything on the host", Control: badArgument, run: trySyscall(unix.SYS_REBOOT, 1, 2, 3, 0)},
	{Class: "machine settings", Name: "swap-on", Gain: "a file of the sandbox in which the kernel keeps memory of others", Control: badArgument, run: trySyscall(unix.SYS_SWAPON, badPointer, 0)},
	{Class: "machine settings", Name: "swap-off", Gain: "a host that runs out of memory", Control: badArgument, run: trySyscall(unix.SYS_SWAPOFF, badPointer)},
	{Class: "machine settings", Name: "accounting", Gain: "a file with every command of the host", Control: badArgument, run: trySyscall(unix.SYS_ACCT, badPointer)},
	{Class: "machine settings", Name: "quota", Gain: "quotas of the host's file systems", Control: badArgument, run: trySyscall(unix.SYS_QUOTACTL, 0x80000700, badPointer, 0, badPointer)},
	{Class: "machine settings", Name: "io-privilege", Gain: "the machine's ports", Control: "of its own thread", run: trySyscall(unix.SYS_IOPL, 3)},
	{Class: "machine settings", Name: "io-ports", Gain: "the machine's ports", Control: "of its own thread", run: trySyscall(unix.SYS_IOPERM, 0x80, 1, 1)},
	{Class: "machine settings", Name: "host-name", Gain: "another name of the host", Control: badArgument, run: trySyscall(unix.SYS_SETHOSTNAME, badPointer, 1)},
	{Class: "machine settings", Name: "domain-name", Gain: "another name of the host", Control: badArgument, run: trySyscall(unix.SYS_SETDOMAINNAME, badPointer, 1)},
	// A time zone of seven days is invalid.
	{Class: "machine settings", Name: "set-time", Gain: "another time on the host", Control: badArgument, run: func(*Target) error {
		zone := [2]int32{7 * 24 * 60, 0}
		return errnoOf(unix.Syscall(unix.SYS_SETTIMEOFDAY, 0, uintptr(unsafe.Pointer(&zone)), 0))
	}},
	// A tick of no length is invalid.
	{Class: "machine settings", Name: "adjust-time", Gain: "a clock that runs wrong on the host", Control: badArgument, run: func(*Target) error {
		_, err := unix.Adjtimex(&unix.Timex{Modes: adjustTick})
		return err
	}},
	{Class: "machine settings", Name: "adjust-clock", Gain: "a clock that runs wrong on the host", Control: badArgument, run: func(*Target) error {
		_, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &unix.Timex{Modes: adjustTick})
		return err
	}},
	{Class: "machine settings", Name: "console-level", Gain: "kernel messages that are not shown", Control: badArgument, run: trySyscall(unix.SYS_SYSLOG, 8, 0, 0)},
	{Class: "machine settings", Name: "clear-kernel-log", Gain: "kernel messages that are lost", Control: "only asks how many there are", run: func(t *Target) error {
		action := uintptr(unix.SYSLOG_ACTION_CLEAR)
		if t.Control {
			action = unix.SYSLOG_ACTION_SIZE_UNREAD
		}
		return errnoOf(unix.Syscall(unix.SYS_SYSLOG, action, 0, 0))
	}},
}

var bpf = []Attempt{
	{Class: "bpf and perf", Name: "bpf-map", Gain: "the verifier's code, and memory of the kernel", run: descriptor(func() (int, error) {
		return bpfCall(0, []uint32{2, 4, 4, 1}) // an array of one entry of four bytes
	})},
	{Class: "bpf and perf", Name: "bpf-program", Gain: "a program in the kernel", Control: badArgument, run: func(*Target) error {
		_, err := bpfCall(5, []uint32{1, 0})
		return err
	}},
	{Class: "bpf and perf", Name: "bpf-list", Gain: "the host's programs", Control: badArgument, run: func(*Target) error {
		_, err := bpfCall(11, []uint32{0xffffffff, 1, 1, 1}) // BPF_PROG_GET_NEXT_ID with unknown fields set
		return err
	}},
	{Class: "bpf and perf", Name: "perf-host", Gain: "what the host's programs do", run: perf(-1, 0, 0)},
	{Class: "bpf and perf", Name: "perf-kernel", Gain: "addresses of the kernel", run: perf(0, -1, 0)},
}

// bpfCall makes a call of bpf(2) with the first fields of its attributes.
func bpfCall(command uintptr, fields []uint32) (int, error) {
	var attr [32]uint32
	copy(attr[:], fields)
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(unsafe.Pointer(&attr)), 72)
	return int(fd), errnoOf(0, 0, errno)
}

// perf returns an attempt that counts events of a process or processor.
func perf(pid, processor int, bits uint64) func(*Target) error {
	return descriptor(func() (int, error) {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Bits: bits}
		attr.Size = uint32(unsafe.Sizeof(attr))
		return unix.PerfEventOpen(&attr, pid, processor, -1, unix.PERF_FLAG_FD_CLOEXEC)
	})
}

var userfaultfd = []Attempt{
	{Class: "userfaultfd", Name: "userfaultfd", Gain: "kernel code that waits for it, which wins races", run: descriptorOf(unix.SYS_USERFAULTFD, unix.O_CLOEXEC)},
	{Class: "userfaultfd", Name: "userfaultfd-of-user-mode", Gain: "the same code with fewer rights", run: descriptorOf(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1)},
	{Class: "userfaultfd", Name: "userfaultfd-device", Gain: "the same by a device", run: tryOpen("/dev/userfaultfd", unix.O_RDWR)},
}

var ioUring = []Attempt{
	{Class: "io_uring", Name: "io-uring-setup", Gain: "calls that seccomp does not see", disabledBy: setting{"/proc/sys/kernel/io_uring_disabled", "2"}, run: descriptor(func() (int, error) {
		var params [120]byte
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		return int(fd), errnoOf(0, 0, errno)
	})},
	{Class: "io_uring", Name: "io-uring-enter", Gain: "the same with a descriptor from elsewhere", Control: badArgument, run: trySyscall(unix.SYS_IO_URING_ENTER, badDescriptor, 0, 0, 0, 0, 0)},
	{Class: "io_uring", Name: "io-uring-register", Gain: "the same with a descriptor from elsewhere", Control: badArgument, run: trySyscall(unix.SYS_IO_URING_REGISTER, badDescriptor, 0, 0, 0)},
}

const keyName = "crannog-escape"

var keyrings = []Attempt{
	{Class: "keyrings", Name: "add-key", Gain: "memory of the kernel that no limit of the sandbox counts", run: func(*Target) error { return addKey() }},
	{Class: "keyrings", Name: "request-key", Gain: "a program of the host that the kernel starts", run: func(*Target) error {
		_ = addKey()
		_, err := unix.RequestKey("user", keyName, "", 0)
		return err
	}},
	{Class: "keyrings", Name: "session-keyring", Gain: "keys of the session that started the server", run: func(*Target) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
		return err
	}},
	{Class: "keyrings", Name: "user-keyring", Gain: "keys of other processes with the same ID", run: func(*Target) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
		return err
	}},
	{Class: "keyrings", Name: "list-keys", Gain: "names of the host's keys", run: func(t *Target) error {
		if t.Control {
			_ = addKey()
		}
		return readFile("/proc/keys")
	}},
	{Class: "keyrings", Name: "list-key-users", Gain: "which users the host has", run: tryRead("/proc/key-users")},
}

// addKey adds a key to the process's own keyring, which ends with the process.
func addKey() error {
	_, err := unix.AddKey("user", keyName, []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	return err
}

var terminals = []Attempt{
	{Class: "terminals", Name: "type-into-terminal", Gain: "commands in the terminal from which a user attached to the sandbox", Control: "with a terminal of its own", run: onTerminal(func(slave int) error {
		letter := byte('x')
		return errnoOf(unix.Syscall(unix.SYS_IOCTL, uintptr(slave), unix.TIOCSTI, uintptr(unsafe.Pointer(&letter))))
	}), refused: []syscall.Errno{unix.ENOTTY}},
	{Class: "terminals", Name: "paste-into-terminal", Gain: "the same on a virtual console", Control: onlyOpened, run: tryOpen("/dev/tty0", unix.O_RDWR)},
	{Class: "terminals", Name: "open-console", Gain: "the machine's console", run: tryOpen("/dev/console", unix.O_WRONLY)},
	{Class: "terminals", Name: "open-virtual-console", Gain: "a screen of the machine", run: tryOpen("/dev/tty1", unix.O_RDWR)},
	{Class: "terminals", Name: "open-serial-line", Gain: "a serial line of the machine", run: tryOpen("/dev/ttyS0", unix.O_RDWR)},
	{Class: "terminals", Name: "screen-memory", Gain: "what a screen of the machine shows", run: tryOpen("/dev/vcs1", unix.O_RDONLY)},
}

// onTerminal returns an attempt on a new terminal.
func onTerminal(run func(slave int) error) func(*Target) error {
	return func(*Target) error {
		master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(master)
		if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
		if errno != 0 {
			number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
			if err != nil {
				return err
			}
			f, err := os.OpenFile("/dev/pts/"+itoa(number), unix.O_RDWR|unix.O_NOCTTY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			return run(int(f.Fd()))
		}
		defer unix.Close(int(slave))
		return run(int(slave))
	}
}
