package runner

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of a process that compiles an untrusted module.
const (
	compilerMemory  = 2 << 30
	compilerSeconds = 120
	compilerFile    = 1 << 30
)

// limitCompiler limits the resources of the process, which is in no sandbox.
func limitCompiler() error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_DATA: compilerMemory, unix.RLIMIT_CPU: compilerSeconds, unix.RLIMIT_FSIZE: compilerFile, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	return nil
}

// confine drops, for all threads, everything that no module needs: other programs, sockets, other
// processes, and all files except those below dirs.
func confine(dirs []string) error {
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if err := restrictFiles(dirs); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if err := install(callFilter()); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// refuseNewCode prevents the process from making memory executable. A module that gained write
// access to the whole process could then use only existing code.
func refuseNewCode() error {
	if err := install(codeFilter()); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// onAllThreads makes a system call on each thread, because rights belong to threads.
func onAllThreads(call, a, b uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(call, a, b, 0); errno != 0 {
		return errno
	}
	return nil
}

// Rights on files, by the Landlock version that introduced them.
const (
	firstRights = unix.LANDLOCK_ACCESS_FS_EXECUTE<<13 - 1
	moves       = unix.LANDLOCK_ACCESS_FS_REFER    // version 2
	truncates   = unix.LANDLOCK_ACCESS_FS_TRUNCATE // version 3
	devices     = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
)

// restrictFiles makes Landlock refuse all files that are not below dirs. It is the second layer:
// the first is os.Root, which follows no path out of a directory. On a kernel without Landlock only
// the first layer is active.
func restrictFiles(dirs []string) error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno == unix.ENOSYS || errno == unix.EOPNOTSUPP {
		return nil
	}
	if errno != 0 {
		return errno
	}
	if version < 2 {
		return nil // an earlier version would refuse to move files between directories
	}
	handled := uint64(firstRights | moves)
	if version >= 3 {
		handled |= truncates
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	// Later versions have longer attributes. Missing ones are zero.
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(ruleset))
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, allow(int(ruleset), dir, handled&^(devices|unix.LANDLOCK_ACCESS_FS_EXECUTE)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return onAllThreads(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
}

// allow adds a directory to a ruleset.
func allow(ruleset int, dir string, rights uint64) error {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	rule := unix.LandlockPathBeneathAttr{Parent_fd: int32(f.Fd()), Allowed_access: rights}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
