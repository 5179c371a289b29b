package spawn

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/lineage"
)

// step is a system call that the child makes.
type step struct {
	number    uintptr
	arguments [5]uintptr
}

// steps are the system calls of a child. The last one executes the program. The memory at the
// addresses in them is pinned, because Go sees no other reference to it.
type steps struct {
	list []step
	pin  *runtime.Pinner
}

func (s *steps) add(number uintptr, arguments ...uintptr) {
	next := step{number: number}
	copy(next.arguments[:], arguments)
	s.list = append(s.list, next)
}

// address returns the address of v, which stays valid until the child has executed its steps.
func address[T any](s *steps, v *T) uintptr {
	s.pin.Pin(v)
	return uintptr(unsafe.Pointer(v))
}

// plan returns the system calls that start the program. The child makes each of them while it still
// has the rights for it.
func plan(pin *runtime.Pinner, path string, argv []string, attr *syscall.ProcAttr, mark lineage.Mark) ([]step, error) {
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return nil, err
	}
	dir, err := syscall.BytePtrFromString(attr.Dir)
	if err != nil {
		return nil, err
	}
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return nil, err
	}
	env, err := syscall.SlicePtrFromStrings(attr.Env)
	if err != nil {
		return nil, err
	}
	s := &steps{pin: pin}
	if mark != lineage.None {
		limit := mark.Limit()
		s.add(unix.SYS_PRLIMIT64, 0, lineage.Resource, address(s, &limit), 0)
	}
	if attr.Sys.Setsid {
		s.add(unix.SYS_SETSID)
	}
	s.setUser(attr.Sys.Credential)
	if attr.Dir != "" {
		s.add(unix.SYS_CHDIR, address(s, dir))
	}
	for i, fd := range attr.Files {
		s.add(unix.SYS_DUP3, fd, uintptr(i), 0)
	}
	if attr.Sys.Setctty {
		s.add(unix.SYS_IOCTL, uintptr(attr.Sys.Ctty), unix.TIOCSCTTY, 1)
	}
	// All signals have been blocked since before the fork. Unblock them.
	s.add(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, address(s, new(uint64)), 0, unsafe.Sizeof(uint64(0)))
	s.add(unix.SYS_EXECVE, address(s, name), address(s, &args[0]), address(s, &env[0]))
	return s.list, nil
}

// setUser adds the steps that change the child's user.
func (s *steps) setUser(c *syscall.Credential) {
	if c == nil {
		return
	}
	groups := uintptr(0)
	if len(c.Groups) > 0 {
		groups = address(s, &c.Groups[0])
	}
	s.add(unix.SYS_SETGROUPS, uintptr(len(c.Groups)), groups)
	s.add(unix.SYS_SETGID, uintptr(c.Gid))
	s.add(unix.SYS_SETUID, uintptr(c.Uid))
}
