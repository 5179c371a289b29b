package runner

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/landlock"
)

// Limits of a process that compiles an untrusted module.
const (
	compilerMemory  = 2 << 30
	compilerSeconds = 120
	compilerFile    = 1 << 30
)

// limitCompiler limits the resources of the process, because it is not in a sandbox.
func limitCompiler() error {
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_DATA: compilerMemory, unix.RLIMIT_CPU: compilerSeconds, unix.RLIMIT_FSIZE: compilerFile, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	return nil
}

// confine drops, for all threads, access to everything that modules do not need: other programs,
// sockets, other processes, and all files except those below dirs.
func confine(dirs []string) error {
	if err := onAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
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
func onAllThreads(call, a, b, c uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(call, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// maxLandlock is the latest version of Landlock whose rights are removed.
const maxLandlock = 3

// restrictFiles makes Landlock refuse all files that are not below dirs. It is the second layer:
// the first is os.Root, which follows no path out of a directory. On a kernel without Landlock only
// the first layer is active.
func restrictFiles(dirs []string) error {
	version, err := landlock.Version()
	if err != nil || version < landlock.Refer {
		return err // an older version would refuse to move files between directories
	}
	handled := landlock.Files(min(version, maxLandlock))
	ruleset, err := landlock.New(handled, 0)
	if err != nil {
		return err
	}
	defer ruleset.Close()
	const refused = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_EXECUTE
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, ruleset.Allow(dir, handled&^refused))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return ruleset.Restrict(onAllThreads)
}
