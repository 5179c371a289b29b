// Package landlock owns the system calls of Landlock, with which a process gives up rights on files
// and the network. It knows the kernel's version of Landlock, the rights of each version, and rule
// sets.
package landlock

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addedRights holds the rights on files that each version of Landlock added.
var addedRights = [...]uint64{
	1: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM,
	2: unix.LANDLOCK_ACCESS_FS_REFER,
	3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
	5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
}

// Versions of Landlock that added rights which callers must treat specially.
const (
	// Refer is the first version in which a rule can allow moving files between directories. Older
	// versions refuse such moves under every rule set.
	Refer = 2
	// BindTCP is the first version that can restrict TCP ports.
	BindTCP = 4
)

// Version returns the kernel's version of Landlock. It is zero if the kernel has no Landlock, or if
// Landlock is turned off.
func Version() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errors.Is(errno, unix.ENOSYS) || errors.Is(errno, unix.EOPNOTSUPP) {
		return 0, nil
	}
	if errno != 0 {
		return 0, errno
	}
	return int(version), nil
}

// Files returns all rights on files that a version knows.
func Files(version int) uint64 {
	var rights uint64
	for v, added := range addedRights {
		if v <= version {
			rights |= added
		}
	}
	return rights
}

// Ruleset lists the rights that a process gives up, and the files on which it keeps some of them.
type Ruleset struct{ fd int }

// New returns a rule set that refuses the given rights on files and on the network.
func New(files, network uint64) (*Ruleset, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: files, Handled_access_net: network}
	// A kernel with a shorter attribute accepts a longer one whose rest is zero.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("rule set: %w", errno)
	}
	return &Ruleset{int(fd)}, nil
}

// Close closes the descriptor of the rule set. Restrictions that are in force remain.
func (r *Ruleset) Close() error { return unix.Close(r.fd) }

// Allow keeps rights on a file, or on a directory and all that is below it.
func (r *Ruleset) Allow(path string, rights uint64) error {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.AllowFile(f, rights)
}

// AllowFile is Allow for an open file.
func (r *Ruleset) AllowFile(f *os.File, rights uint64) error {
	rule := unix.LandlockPathBeneathAttr{Parent_fd: int32(f.Fd()), Allowed_access: rights}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("rule for %s: %w", f.Name(), errno)
	}
	return nil
}

// Restrict puts the rule set into force with the function call, which makes a system call. The
// restriction applies to the threads on which call makes it, and to everything that they start. The
// process must have given up gaining privileges (PR_SET_NO_NEW_PRIVS), or have CAP_SYS_ADMIN.
func (r *Ruleset) Restrict(call func(trap, a1, a2, a3 uintptr) error) error {
	return call(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0)
}
