package enginetest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// syscallProbe returns an attempt that makes a system call.
func syscallProbe(nr uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
}

// descriptor returns an attempt that succeeds if a call returns a descriptor.
func descriptor(get func() (int, error)) func() error {
	return func() error {
		fd, err := get()
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

// socketProbe returns an attempt that creates a socket.
func socketProbe(family, kind, protocol int) func() error {
	return descriptor(func() (int, error) { return unix.Socket(family, kind, protocol) })
}

const (
	badAddress = ^uintptr(4095) // an address that is never mapped
	badFD      = ^uintptr(0)    // a descriptor that is never open
)

var (
	noSuchCall   = []syscall.Errno{unix.ENOSYS}
	noSuchFamily = []syscall.Errno{unix.EAFNOSUPPORT}
	noSuchFile   = []syscall.Errno{unix.ENOENT}
)

// kernelProbes holds system calls that try to reach the machine's kernel.
var kernelProbes = map[string]probe{
	"kexec-load":      {try: syscallProbe(unix.SYS_KEXEC_LOAD, 0, 99, badAddress, badFD), lacks: noSuchCall},
	"kexec-file-load": {try: syscallProbe(unix.SYS_KEXEC_FILE_LOAD, badFD, badFD, 0, 0, 0xffff), lacks: noSuchCall},
	"init-module":     {try: syscallProbe(unix.SYS_INIT_MODULE, badAddress, 1, badAddress), lacks: noSuchCall},
	"finit-module":    {try: syscallProbe(unix.SYS_FINIT_MODULE, badFD, badAddress, 0), lacks: noSuchCall},
	"delete-module":   {try: syscallProbe(unix.SYS_DELETE_MODULE, badAddress, 0), lacks: noSuchCall},
	"acct":            {try: syscallProbe(unix.SYS_ACCT, badAddress), lacks: noSuchCall},
	"swapon":          {try: syscallProbe(unix.SYS_SWAPON, badAddress, 0), lacks: noSuchCall},
	"swapoff":         {try: syscallProbe(unix.SYS_SWAPOFF, badAddress), lacks: noSuchCall},
	"quotactl":        {try: syscallProbe(unix.SYS_QUOTACTL, 0x80000700, badAddress, 0, badAddress), lacks: noSuchCall},
	"reboot":          {try: syscallProbe(unix.SYS_REBOOT, 1, 2, 3, 0)},
	"iopl":            {try: syscallProbe(unix.SYS_IOPL, 3), lacks: noSuchCall},
	"ioperm":          {try: syscallProbe(unix.SYS_IOPERM, 0x80, 1, 1), lacks: noSuchCall},
	"set-hostname":    {try: syscallProbe(unix.SYS_SETHOSTNAME, badAddress, 1)},
	"set-domain-name": {try: syscallProbe(unix.SYS_SETDOMAINNAME, badAddress, 1)},
	// A time zone of seven days is invalid, but a caller that may not set the clock is refused
	// first.
	"set-time": {try: func() error {
		zone := [2]int32{7 * 24 * 60, 0}
		return errnoOf(unix.Syscall(unix.SYS_SETTIMEOFDAY, 0, uintptr(unsafe.Pointer(&zone)), 0))
	}},
	// A clock tick of length 0 is invalid too, but a caller without the right is refused first.
	"adjust-time": {try: func() error { _, err := unix.Adjtimex(&unix.Timex{Modes: adjTick}); return err }},
	"adjust-clock": {try: func() error {
		_, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &unix.Timex{Modes: adjTick})
		return err
	}},
	// 8 is SYSLOG_ACTION_CONSOLE_LEVEL. The level 0 is invalid too, see set-time.
	"console-level": {try: syscallProbe(unix.SYS_SYSLOG, 8, 0, 0)},
	"bpf": {lacks: noSuchCall, try: descriptor(func() (int, error) {
		attr := [32]uint32{2, 4, 4, 1} // an array of one entry of four bytes
		fd, _, errno := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), 72)
		return int(fd), errnoOf(0, 0, errno)
	})},
	"perf-event-open": {lacks: noSuchCall, try: descriptor(func() (int, error) {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK}
		attr.Size = uint32(unsafe.Sizeof(attr))
		return unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC) // all events of a processor
	})},
	"io-uring": {lacks: noSuchCall, off: setting{"/proc/sys/kernel/io_uring_disabled", "2"}, try: descriptor(func() (int, error) {
		var params [120]byte
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		return int(fd), errnoOf(0, 0, errno)
	})},
	"userfaultfd": {lacks: noSuchCall, try: descriptor(func() (int, error) {
		fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
		return int(fd), errnoOf(0, 0, errno)
	})},
	"fanotify":       {lacks: noSuchCall, try: descriptor(func() (int, error) { return unix.FanotifyInit(unix.FAN_CLASS_CONTENT, 0) })},
	"add-key":        {lacks: noSuchCall, try: addKey},
	"request-key":    {lacks: noSuchCall, try: func() error { _ = addKey(); _, err := unix.RequestKey("user", keyName, "", 0); return err }},
	"search-keyring": {lacks: noSuchCall, try: func() error { _ = addKey(); return searchKeyring() }},
	"user-keyring":   {lacks: noSuchCall, try: func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true); return err }},
	// gVisor allows this call for two other bits, which change nothing.
	"personality": {try: syscallProbe(unix.SYS_PERSONALITY, 0x0040000), refusals: []syscall.Errno{unix.EINVAL}}, // ADDR_NO_RANDOMIZE
	"push-input":  {try: pushInput, refusals: []syscall.Errno{unix.ENOTTY}},
	"alg-socket":  {try: socketProbe(unix.AF_ALG, unix.SOCK_SEQPACKET, 0), lacks: noSuchFamily},
	"vsock":       {try: socketProbe(unix.AF_VSOCK, unix.SOCK_STREAM, 0), lacks: noSuchFamily},
	// 0x0300 is ETH_P_ALL in network byte order.
	"packet-socket":      {try: socketProbe(unix.AF_PACKET, unix.SOCK_RAW, 0x0300)},
	"raw-socket":         {try: socketProbe(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
	"connect-link-local": {try: connectLinkLocal},
}

const (
	adjTick = 0x4000 // ADJ_TICK
	keyName = "crannog-probe"
)

// errnoOf returns the error of a system call's results.
func errnoOf(_, _ uintptr, errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// addKey adds a key to the process's own keyring, which ends with the process.
func addKey() error {
	_, err := unix.AddKey("user", keyName, []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	return err
}

// searchKeyring searches for the key of addKey.
func searchKeyring() error {
	_, err := unix.KeyctlSearch(unix.KEY_SPEC_PROCESS_KEYRING, "user", keyName, 0)
	return err
}

// pushInput types a letter into a terminal that belongs to another process.
func pushInput() error {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open a terminal for the attempt: %v", err)
	}
	defer unix.Close(master)
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return fmt.Errorf("cannot open a terminal for the attempt: %v", err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("cannot open a terminal for the attempt: %v", err)
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open a terminal for the attempt: %v", err)
	}
	defer unix.Close(slave)
	letter := byte('x')
	return errnoOf(unix.Syscall(unix.SYS_IOCTL, uintptr(slave), unix.TIOCSTI, uintptr(unsafe.Pointer(&letter))))
}

// connectLinkLocal connects to the address of cloud metadata services. The control runs a service
// at this address, on the loopback of a separate network namespace.
func connectLinkLocal() error {
	const address = "169.254.169.254:80"
	if os.Getenv(controlEnv) != "" {
		l, err := listenLinkLocal(address)
		if err != nil {
			return fmt.Errorf("control: %v", err)
		}
		defer l.Close()
	}
	conn, err := net.Dial("tcp", address)
	if err == nil {
		return conn.Close()
	}
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ECONNREFUSED) {
		return unix.EPERM
	}
	return err
}

// listenLinkLocal adds the address to the loopback interface and listens on it.
func listenLinkLocal(address string) (net.Listener, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return nil, err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return nil, err
	}
	if err := req.SetInet4Addr([]byte{169, 254, 169, 254}); err != nil {
		return nil, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, req); err != nil {
		return nil, err
	}
	return net.Listen("tcp", address)
}
