// Package attempts owns the escape attempts: each way out of a sandbox has a class, a name, and
// what its success would give an attacker. The same attempts run inside a sandbox, where each must
// fail, and on the bare host, where each must succeed.
package attempts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attempt is one way out of a sandbox.
//
// Dangerous calls have arguments that a kernel rejects only after it has checked the caller's
// rights, so that the control on the host changes nothing. An error that is neither a refusal nor
// an absence counts as an escape, so that a wrong attempt fails the test.
type Attempt struct {
	Class string
	Name  string
	// Gain is what success would give an attacker.
	Gain string
	// Control describes how the control on the host differs from an attack, or is "".
	Control string

	run func(*Target) error
	// refused are errors that refuse this attempt, in addition to refusals.
	refused []syscall.Errno
	// capability is what the control needs. disabledBy is a setting of the host that may have
	// disabled the attacked feature.
	capability int
	disabledBy setting
}

// setting is a file of the host and its content when a feature is disabled.
type setting struct{ path, value string }

// Unproven returns why the control of the attempt on this host cannot succeed, or "".
func (a Attempt) Unproven(answer Answer) string {
	if answer.Verdict == Absent || answer.Errno == unix.ENOSYS {
		return "this host lacks the feature: " + answer.Text
	}
	if a.disabledBy.path != "" {
		if text, _ := os.ReadFile(a.disabledBy.path); strings.TrimSpace(string(text)) == a.disabledBy.value {
			return a.disabledBy.path + " is " + a.disabledBy.value
		}
	}
	if have, err := effective(); a.capability != 0 && err == nil && have&(1<<a.capability) == 0 {
		return fmt.Sprintf("root of this host lacks the capability %d", a.capability)
	}
	return ""
}

// Verdict is the result of an attempt.
type Verdict string

const (
	Blocked Verdict = "blocked" // refused
	Absent  Verdict = "absent"  // the attacked object does not exist
	Escaped Verdict = "escaped" // the attempt succeeded, or its error was unexpected
)

// Answer is what the probe program prints for an attempt.
type Answer struct {
	Name    string        `json:"name"`
	Verdict Verdict       `json:"verdict"`
	Errno   syscall.Errno `json:"errno,omitempty"`
	Text    string        `json:"text,omitempty"`
}

// Target describes the host that the attempts attack. The test creates everything in it.
type Target struct {
	// Control is set on the host, where the attempts must succeed.
	Control bool
	// First is the process that stands for PID 1 of a sandbox.
	First int
	// Victim is the ID of a process of the host, and VictimMark is in its arguments.
	Victim     int
	VictimMark string
	// Secrets are files of the host that every user may read, by directory.
	Secrets map[string]string
	// Socket is the path of a Unix socket of the host, and Abstract the name of one in the abstract
	// namespace. Both pass a descriptor of a secret to each client.
	Socket, Abstract string
	// Port is a port of the host's loopback that answers over HTTP, and Addresses are
	// other addresses of the host that answer there.
	Port      int
	Addresses []string
	// Server is the control socket of the server that made the sandbox.
	Server string
	// Disk is the device of the host's disk, as a path and as a number.
	Disk   string
	Device uint64
	// These exceed the sandbox's limits.
	MemoryBytes, DiskBytes int64
	Processes, Files       int
}

// All returns all attempts, with Last at the end.
func All() []Attempt {
	return slices.Concat(
		mounts, namespaces, kernelCode, machine, bpf, userfaultfd, ioUring, keyrings, procfs, corePattern, sysfs, devices,
		cgroups, tracing, sockets, terminals, links, descriptors, firstProgram, services, metadata, dns, setUserID,
		capabilities, hostProcesses, hostFiles, resources,
	)
}

// Last is the attempt that may end the whole sandbox.
const Last = "memory"

// Classes returns the classes in the order of All.
func Classes() (list []string) {
	for _, a := range All() {
		if !slices.Contains(list, a.Class) {
			list = append(list, a.Class)
		}
	}
	return list
}

var (
	refusals = []syscall.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EROFS}
	absences = []syscall.Errno{
		unix.ENOENT, unix.ESRCH, unix.ENODEV, unix.ENXIO, unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT,
	}
)

// absentError means that there is nothing to attack.
type absentError string

func (e absentError) Error() string { return string(e) }

// Make makes the attempt on a new thread, which ends with it, so that changes of the thread do not
// affect the next attempt.
func (a Attempt) Make(t *Target) Answer {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- a.run(t)
	}()
	return a.verdict(<-done)
}

func (a Attempt) verdict(err error) Answer {
	answer := Answer{Name: a.Name, Verdict: Escaped}
	if err == nil {
		return answer
	}
	answer.Text = err.Error()
	if !errors.As(err, &answer.Errno) && errors.Is(err, fs.ErrNotExist) {
		answer.Errno = unix.ENOENT
	}
	_, absent := errors.AsType[absentError](err)
	switch {
	case absent, slices.Contains(absences, answer.Errno):
		answer.Verdict = Absent
	case slices.Contains(refusals, answer.Errno), slices.Contains(a.refused, answer.Errno):
		answer.Verdict = Blocked
	}
	return answer
}

const (
	badPointer    = ^uintptr(4095) // an address that is never mapped
	badDescriptor = ^uintptr(0)    // a descriptor that is never open
)

func errnoOf(_, _ uintptr, errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// trySyscall returns an attempt that makes a system call.
func trySyscall(nr uintptr, args ...uintptr) func(*Target) error {
	return func(*Target) error {
		var a [6]uintptr
		copy(a[:], args)
		return errnoOf(unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]))
	}
}

// descriptor returns an attempt that gets a descriptor and closes it.
func descriptor(get func() (int, error)) func(*Target) error {
	return func(*Target) error {
		fd, err := get()
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
}

// descriptorOf returns an attempt that makes a system call that returns a descriptor.
func descriptorOf(nr uintptr, args ...uintptr) func(*Target) error {
	return descriptor(func() (int, error) {
		var a [3]uintptr
		copy(a[:], args)
		fd, _, errno := unix.Syscall(nr, a[0], a[1], a[2])
		return int(fd), errnoOf(0, 0, errno)
	})
}

// tryOpen returns an attempt that opens a file and neither reads nor writes, so that the control
// changes nothing.
func tryOpen(path string, flags int) func(*Target) error {
	return func(*Target) error { return openFile(path, flags) }
}

func openFile(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// tryRead returns an attempt that reads the beginning of a file.
func tryRead(path string) func(*Target) error { return func(*Target) error { return readFile(path) } }

func readFile(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, make([]byte, 16))
	if err == nil && n == 0 {
		return absentError(path + " is empty")
	}
	return err
}

// listDir lists a directory, and fails if it is empty.
func listDir(path string) error {
	entries, err := os.ReadDir(path)
	if err == nil && len(entries) == 0 {
		return absentError(path + " is empty")
	}
	return err
}

// onScratch returns an attempt on a temporary directory, which also removes the attempt's mounts
// there.
func onScratch(run func(dir string) error) func(*Target) error {
	return func(*Target) error {
		dir, err := os.MkdirTemp("/tmp", "escape-")
		if err != nil {
			return fmt.Errorf("create a temporary directory for the attempt: %v", err)
		}
		defer os.RemoveAll(dir)
		defer unix.Unmount(dir, unix.MNT_DETACH)
		return run(dir)
	}
}

// first returns the path of a file of PID 1, or of the process that stands for it in the control.
func (t *Target) first(name string) string { return fmt.Sprintf("/proc/%d/%s", t.First, name) }

// secret returns the path of one of the secrets.
func (t *Target) secret() string {
	for _, dir := range []string{"/var/tmp", "/root", "/tmp"} {
		if path := t.Secrets[dir]; path != "" {
			return path
		}
	}
	return ""
}

// readSecret reads a secret, and fails unless the content is the host's.
func readSecret(path string) error {
	data, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(data), SecretText) {
		return absentError(path + " is not the host's")
	}
	return err
}

// SecretText is the content of secrets and of the answers of the host's sockets.
const SecretText = "crannog-escape-secret"

// Reached reports whether an error of the control shows that the kernel checked the arguments of a
// call, and so that the caller's rights were sufficient.
func (a Attempt) Reached(answer Answer) bool {
	return a.Control == badArgument && slices.Contains([]syscall.Errno{unix.EINVAL, unix.EFAULT, unix.EBADF, unix.E2BIG}, answer.Errno)
}
