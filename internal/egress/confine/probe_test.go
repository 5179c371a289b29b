//go:build !race

package confine_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/confine"
)

var rules = confine.Rules{
	UID: nobody, Read: confine.Targets("/etc/resolv.conf", "/etc/hosts", "/etc/ssl", "/usr/share/ca-certificates", "/no/such/file"),
	Spool: "/proc/self/fd/4", Files: 512, FileBytes: 64 << 10, SoftMemory: 256 << 20, HardMemory: 1 << 30,
}

// attempt is something that hostile code would try. It counts as a success if the call succeeds, or
// fails for another reason than a missing right.
type attempt struct {
	name string
	// privileged attempts are refused to ordinary users even without confinement.
	privileged bool
	// optional are calls that some kernels are built without.
	optional bool
	do       func(p target) error
}

type target struct{ dir, address string }

func call(number uintptr, a ...uintptr) func(target) error {
	a = append(a, 0, 0, 0, 0, 0, 0)
	return func(target) error {
		_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		if errno == 0 {
			return nil
		}
		return errno
	}
}

func socket(domain, kind, protocol int) func(target) error {
	return func(target) error {
		fd, err := unix.Socket(domain, kind, protocol)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
}

const none = ^uintptr(0) // no descriptor, no process

var attempts = []attempt{
	{name: "run a program", do: func(target) error { return exec.Command("/proc/self/exe", "-test.run=^$").Run() }},
	{name: "execve", do: call(unix.SYS_EXECVE)},
	{name: "execveat", do: call(unix.SYS_EXECVEAT, none)},
	{name: "clone3", do: call(unix.SYS_CLONE3, 0, 0)},
	{name: "new user namespace", do: call(unix.SYS_CLONE, unix.CLONE_THREAD|unix.CLONE_NEWUSER)},
	{name: "unshare", do: call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER)},
	{name: "setns", do: call(unix.SYS_SETNS, none, 0)},
	{name: "ptrace", do: call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 0x7fffffff)},
	{name: "process_vm_readv", do: call(unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()))},
	{name: "process_vm_writev", do: call(unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getpid()))},
	{name: "pidfd_open", do: call(unix.SYS_PIDFD_OPEN, 0x7fffffff, 0)},
	{name: "kill", do: call(unix.SYS_KILL, 0x7fffffff, 0)},
	{name: "tgkill of another process", do: call(unix.SYS_TGKILL, 0x7ffffffe, 0x7fffffff, 0)},
	{name: "mount", privileged: true, do: func(target) error { return unix.Mount("none", "/no/such/place", "tmpfs", 0, "") }},
	{name: "mount by descriptor", privileged: true, do: call(unix.SYS_FSOPEN, 0, 0)},
	{name: "chroot", privileged: true, do: func(target) error { return unix.Chroot("/no/such/place") }},
	{name: "bpf", privileged: true, do: call(unix.SYS_BPF, 9999, 0, 0)},
	{name: "keyctl", do: call(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, ^uintptr(2), 0)},
	{name: "add_key", do: call(unix.SYS_ADD_KEY)},
	{name: "io_uring", do: call(unix.SYS_IO_URING_SETUP, 1, 0)},
	{name: "userfaultfd", privileged: true, do: call(unix.SYS_USERFAULTFD, 0xffff)},
	{name: "perf_event_open", do: call(unix.SYS_PERF_EVENT_OPEN)},
	{name: "open_by_handle_at", privileged: true, do: call(unix.SYS_OPEN_BY_HANDLE_AT, none, 0, 0)},
	{name: "kexec_load", privileged: true, optional: true, do: call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0xffff)},
	{name: "init_module", privileged: true, optional: true, do: call(unix.SYS_INIT_MODULE)},
	{name: "delete_module", privileged: true, optional: true, do: call(unix.SYS_DELETE_MODULE)},
	{name: "setuid root", privileged: true, do: call(unix.SYS_SETRESUID, none, 0, none)},
	{name: "capset", do: call(unix.SYS_CAPSET, 0, 0)},
	{name: "raise a limit", do: call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, 0, 0)},
	{name: "be dumpable", do: call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)},
	{name: "executable memory", do: func(target) error {
		m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err == nil {
			unix.Munmap(m)
		}
		return err
	}},
	{name: "memory made executable", do: call(unix.SYS_MPROTECT, 0, 0, unix.PROT_EXEC)},
	{name: "memory as a file", do: call(unix.SYS_MEMFD_CREATE)},
	{name: "ioctl", do: call(unix.SYS_IOCTL, 0, 0)},

	{name: "packet socket", privileged: true, do: socket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
	{name: "raw socket", privileged: true, do: socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
	{name: "unix socket", do: socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)},
	{name: "socket pair", do: call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, 0)},
	{name: "other netlink", do: socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC)},
	{name: "kernel crypto socket", do: socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)},
	{name: "other transport", do: socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)},
	{name: "listen", do: func(target) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			l.Close()
		}
		return err
	}},
	{name: "bind TCP", do: func(target) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return fmt.Errorf("no socket at all: %v", err)
		}
		defer unix.Close(fd)
		return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}},
	{name: "socket option of IP", do: call(unix.SYS_SETSOCKOPT, none, unix.SOL_IP, unix.IP_OPTIONS)},

	{name: "read a file", do: func(p target) error { _, err := os.ReadFile(filepath.Join(p.dir, "readable")); return err }},
	{name: "read own memory", do: func(target) error { _, err := os.Open("/proc/self/mem"); return err }},
	{name: "list a directory", do: func(p target) error { _, err := os.ReadDir(p.dir); return err }},
	{name: "make a file", do: func(p target) error { return os.WriteFile(filepath.Join(p.dir, "new"), nil, 0o600) }},
	{name: "write a file", do: func(p target) error {
		f, err := os.OpenFile(filepath.Join(p.dir, "record"), os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			f.Close()
		}
		return err
	}},
	{name: "make a file without a name", do: func(p target) error {
		fd, err := unix.Open(p.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}},
	{name: "make a directory", do: func(p target) error {
		return os.Mkdir(filepath.Join(p.dir, fmt.Sprint("d", time.Now().UnixNano())), 0o700)
	}},
	{name: "rename", do: func(p target) error { return os.Rename(filepath.Join(p.dir, "no"), filepath.Join(p.dir, "other")) }},
	{name: "remove", do: func(p target) error { return os.Remove(filepath.Join(p.dir, "no")) }},
	{name: "change a mode", do: func(p target) error { return os.Chmod(filepath.Join(p.dir, "no"), 0o777) }},
	{name: "cut the record", do: func(target) error { return unix.Ftruncate(3, 0) }},
	{name: "overwrite the record", do: func(target) error {
		_, err := unix.FcntlInt(3, unix.F_SETFL, unix.O_NONBLOCK)
		if err == nil {
			_, err = unix.FcntlInt(3, unix.F_SETFL, unix.O_APPEND)
		}
		return err
	}},
}

// tryAll makes every attempt. It marks errors of a missing right before they are passed on as text,
// because they are recognised by their numbers.
func tryAll(p target) map[string]string {
	out := map[string]string{}
	for _, a := range attempts {
		err := a.do(p)
		switch {
		case err == nil:
			out[a.name] = ""
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOSYS):
			out[a.name] = "refused: " + err.Error()
		default:
			out[a.name] = err.Error()
		}
	}
	return out
}

// before is the data that a process passes to the restarted one.
type before struct {
	Attempts map[string]string
	PID      int
}

func probe() {
	p := target{os.Args[1], os.Args[2]}
	var got result
	born, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	fail(err)
	got.BornHidden = born != 1
	// Existing threads must lose their rights too.
	var wait sync.WaitGroup
	release := make(chan struct{})
	for range 8 {
		wait.Go(func() { runtime.LockOSThread(); <-release; runtime.UnlockOSThread() })
	}
	started, err := confine.Begin(rules, func() ([]byte, error) {
		return json.Marshal(before{tryAll(p), os.Getpid()})
	})
	fail(err)
	var b before
	fail(json.Unmarshal(started.Gathered, &b))
	if b.PID != os.Getpid() {
		fail(fmt.Errorf("the process ID was %d and is %d", b.PID, os.Getpid()))
	}
	report, err := started.Apply()
	fail(err)
	got.Starter, got.Before, got.Report, got.After, got.WorkingCalls = started.UID, b.Attempts, report, tryAll(p), checkWork(p)
	close(release)
	wait.Wait()
	fail(json.NewEncoder(os.Stdout).Encode(got))
	var end [1]byte
	os.Stdin.Read(end[:])
}

func fail(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// checkWork checks that the process can still do its work. It returns an error text by operation.
func checkWork(p target) map[string]string {
	out := map[string]string{}
	note := func(name string, err error) {
		out[name] = ""
		if err != nil {
			out[name] = err.Error()
		}
	}
	_, err := os.ReadFile("/etc/resolv.conf")
	note("resolver configuration", err)
	_, err = os.Stat("/etc/hosts")
	note("stat", err)
	_, err = x509.SystemCertPool()
	note("certificates", err)
	found, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", "localhost")
	if err == nil && len(found) == 0 {
		err = errors.New("localhost has no address")
	}
	note("look up", err)
	c, err := net.Dial("tcp", p.address)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		if err != nil && err.Error() == "EOF" {
			err = nil
		}
		c.Close()
	}
	note("dial", err)
	u, err := net.Dial("udp", "127.0.0.1:9")
	if err == nil {
		u.Close()
	}
	note("udp", err)
	addresses, err := net.InterfaceAddrs()
	if err == nil && len(addresses) == 0 {
		err = errors.New("the host has no address")
	}
	note("own addresses", err)
	_, err = unix.Write(3, []byte("line\n"))
	note("append to the record", err)
	// Go ignores the kernel's signal, so the write returns an error.
	_, err = unix.Write(3, make([]byte, 128<<10))
	_, again := unix.Write(3, []byte("x"))
	if err == nil && !errors.Is(again, unix.EFBIG) {
		note("limit of a file's size", fmt.Errorf("a file grows beyond its limit: %v", again))
	} else {
		note("limit of a file's size", nil)
	}
	fd, err := unix.Openat(4, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_, err = unix.Write(fd, []byte("body"))
		// The file cannot be given a name.
		named := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), 4, "named", unix.AT_SYMLINK_FOLLOW)
		if !errors.Is(named, unix.ENOSYS) {
			err = fmt.Errorf("the file can be given a name: %v", named)
		}
		unix.Close(fd)
	}
	note("a file without a name in the spool", err)
	_, err = unix.Openat(4, "named", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EPERM) {
		err = nil
	} else {
		err = fmt.Errorf("a file with a name in the spool: %v", err)
	}
	note("no file with a name in the spool", err)
	note("threads, timers and garbage", runtimeWorks())
	return out
}

func runtimeWorks() error {
	var wait sync.WaitGroup
	for range 32 {
		wait.Go(func() {
			runtime.LockOSThread() // a thread each, which then ends
			time.Sleep(time.Millisecond)
			_ = make([]byte, 1<<20)
		})
	}
	wait.Wait()
	runtime.GC()
	return nil
}

// allocateMemory allocates memory within the limit and then beyond it.
func allocateMemory() {
	started, err := confine.Begin(rules, nil)
	if err == nil {
		_, err = started.Apply()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(0)
	}
	touch(make([]byte, 64<<20))
	fmt.Println("small")
	touch(make([]byte, 2<<30))
	fmt.Println("large")
}

func touch(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		*(*byte)(unsafe.Pointer(&b[i])) = 1
	}
}
