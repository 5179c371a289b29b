package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// accessByVersion lists the file rights that each version of Landlock added. All of them are
// removed, and then reading is allowed below Rules.Read.
var accessByVersion = [...]uint64{
	1: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM,
	2: unix.LANDLOCK_ACCESS_FS_REFER,
	3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
	5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
}

// bindVersion is the first version that restricts TCP. The process dials and never listens, so an
// attacker who takes it over cannot open a port for others on the host.
const bindVersion = 4

// restrictFiles removes access to the file system. Without Landlock, only the filter (which forbids
// opening files for writing) and the user's rights apply, which the report notes.
func (b *Begun) restrictFiles(report *Report) error {
	version, err := landlockVersion()
	if err != nil {
		return err
	}
	if version == 0 {
		report.Notes = append(report.Notes, "this kernel has no Landlock: files that its user may read stay readable to the process")
		return nil
	}
	attr := unix.LandlockRulesetAttr{}
	for v, access := range accessByVersion {
		if v <= version {
			attr.Handled_access_fs |= access
		}
	}
	if version >= bindVersion {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	// Older kernels accept a longer attribute if the rest is zero.
	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("rule set: %w", errno)
	}
	defer unix.Close(int(ruleset))
	for _, path := range b.rules.Read {
		if err := allowBelow(int(ruleset), path, 0); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if b.rules.Spool != "" {
		// A named file cannot be created there, because the filter forbids the system call.
		if err := allowBelow(int(ruleset), b.rules.Spool, unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
			return fmt.Errorf("%s: %w", b.rules.Spool, err)
		}
	}
	if staged {
		// The restart needs both rights. They remain but are useless, because the filter forbids
		// starting programs, and this program file is not secret.
		if err := allowBelow(int(ruleset), self, unix.LANDLOCK_ACCESS_FS_EXECUTE); err != nil {
			return fmt.Errorf("%s: %w", self, err)
		}
		for _, path := range b.rules.Start {
			if err := allowBelow(int(ruleset), path, 0); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if err := change(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); err != nil {
		return err
	}
	report.Landlock = version
	return nil
}

// landlockVersion returns zero if the kernel has no Landlock.
func landlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno == unix.ENOSYS || errno == unix.EOPNOTSUPP {
		return 0, nil
	}
	if errno != 0 {
		return 0, errno
	}
	return int(version), nil
}

// allowBelow allows reading below a path, and further rights.
func allowBelow(ruleset int, path string, more uint64) error {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	rule := unix.LandlockPathBeneathAttr{Parent_fd: int32(f.Fd()), Allowed_access: unix.LANDLOCK_ACCESS_FS_READ_FILE | more}
	if info.IsDir() {
		rule.Allowed_access |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Targets adds the targets of symbolic links to paths: the file, and its directory, because a
// resolver's configuration is replaced there whenever the host changes networks. It does not add a
// directory with much of the host's data, such as /run.
func Targets(paths ...string) []string {
	out := slices.Clone(paths)
	for _, path := range paths {
		target, err := filepath.EvalSymlinks(path)
		if err != nil || target == filepath.Clean(path) {
			continue
		}
		out = append(out, target)
		if dir := filepath.Dir(target); filepath.Dir(dir) != "/" {
			out = append(out, dir)
		}
	}
	return out
}
