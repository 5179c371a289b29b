package guestmain

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
)

// Memory is paid for in every sandbox, processor time only where something
// happens: so the collector runs early.
const (
	collectPercent = 40
	memoryTarget   = 32 << 20
)

// maxProcs bounds the threads that run Go code at once. Two is the least: a
// start of a process holds one until the program is loaded.
const maxProcs = 4

// tune lets the collector rest until settle, unless memory passes the target:
// the start and the first command leave nothing worth its time.
func tune() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryTarget)
	runtime.GOMAXPROCS(max(2, min(runtime.NumCPU(), maxProcs)))
}

// settleAfter is when the start's memory is given back: not while the first
// command, which mostly comes at once, would have to wait for it.
const settleAfter = 2 * time.Second

// settle gives back what only the start needed, and from then on the collector
// runs early.
func settle() {
	debug.SetGCPercent(collectPercent)
	debug.FreeOSMemory()
}

// keepDescriptors marks what this process has open as not for its children.
// A library may have opened something before main without saying so, and a
// descriptor of ours in a program of the user's is a way around every check
// of a path.
func keepDescriptors() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors: %w", err)
	}
	return nil
}

// ignoreSignals keeps the sandbox alive when somebody signals its first
// process. Its end comes from outside or from its clock. The signals are
// taken and dropped rather than ignored, because children inherit what is
// ignored. A write to a pipe without a reader is an error and no signal's
// business.
func ignoreSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
}

// directories that programs expect. They are made where the template has
// none, and left alone where it has.
var directories = []struct {
	path string
	mode fs.FileMode
}{
	{"/run", 0o755},
	{"/run/lock", 0o777 | fs.ModeSticky},
	{"/tmp", 0o777 | fs.ModeSticky},
	{"/var/tmp", 0o777 | fs.ModeSticky},
}

// prepare makes the system around the guest what programs expect.
func prepare(cfg guest.Config, users identity.Users, log *slog.Logger) error {
	unix.Umask(0o022)
	if cfg.Hostname != "" {
		// A kernel that refuses leaves a name that is wrong and harmless.
		if err := unix.Sethostname([]byte(cfg.Hostname)); err != nil {
			log.Warn("hostname is not set", "err", err)
		}
	}
	for _, d := range directories {
		if err := ensure(d.path, d.mode); err != nil {
			return err
		}
	}
	if err := place(cfg.Files); err != nil {
		return err
	}
	user, err := users.Lookup(cfg.DefaultUser)
	if err != nil {
		return fmt.Errorf("default user: %w", err)
	}
	for _, dir := range []string{user.Home, "/workspace"} {
		if err := hand(dir, user, cfg.GrantFileAccess); err != nil {
			return err
		}
	}
	return nil
}

// place writes files over what the template has. No program of the sandbox
// has run yet, so no link in the way can be its.
func place(list []guest.File) error {
	for _, f := range list {
		if !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path {
			return fmt.Errorf("file %q: not a clean absolute path", f.Path)
		}
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		before, err := kept(f)
		if errors.Is(err, errNothingThere) {
			continue
		}
		if err != nil {
			return err
		}
		// A link of the template may point to a file that cannot be written.
		if err := os.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if f.Link != "" {
			err = os.Symlink(f.Link, f.Path)
		} else {
			err = os.WriteFile(f.Path, append(before, f.Data...), fs.FileMode(f.Mode)&fs.ModePerm)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errNothingThere = errors.New("there is no such file")

// kept is what comes before a file's new content.
func kept(f guest.File) ([]byte, error) {
	if !f.Append && f.Around == nil {
		return nil, nil
	}
	before, err := os.ReadFile(f.Path)
	switch a := f.Around; {
	case errors.Is(err, fs.ErrNotExist) && a != nil:
		return nil, errNothingThere
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil || a == nil:
		return before, err
	case len(before) != a.Length || a.From < len(a.Head) || a.To < a.From || a.To > a.Length:
		return nil, fmt.Errorf("%s is not the file that was to be added to", f.Path)
	default:
		// A head of the same size, as all have, costs no copy.
		start := a.From - len(a.Head)
		copy(before[start:], a.Head)
		return before[start:a.To], nil
	}
}

// ensure makes a directory if nothing is there.
func ensure(path string, mode fs.FileMode) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, mode) // the umask took bits from it
}

// hand makes dir the user's if it is root's, as a template has it. Another
// owner is the host's: with file access its directory is usable as it is.
func hand(dir string, user identity.User, fileAccess bool) error {
	if os.Geteuid() != 0 || dir == "" || dir == "/" {
		return nil
	}
	var stat unix.Stat_t
	err := unix.Lstat(dir, &stat)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if stat.Uid == user.UID || stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Uid != 0 && fileAccess {
		return nil
	}
	if err := os.Lchown(dir, int(user.UID), int(user.GID)); !errors.Is(err, unix.EROFS) {
		return err
	}
	return nil // the policy has sealed it
}

// silence points the standard streams at nothing, so that no later message
// of ours blocks on a pipe that nobody reads.
func silence() error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	for fd := range 3 {
		if err := unix.Dup3(null, fd, 0); err != nil && null != fd {
			return fmt.Errorf("redirect descriptor %d: %w", fd, err)
		}
	}
	if null > 2 {
		return unix.Close(null)
	}
	return nil
}
