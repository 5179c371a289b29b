package guestmain

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/host/memtrim"
)

// Memory is in use all the time, in every sandbox. The garbage collector needs processor time only
// when something happens, so it runs early.
const (
	collectPercent = 40
	memoryTarget   = 32 << 20
)

// maxProcs limits GOMAXPROCS. Two is the minimum, because starting a process blocks a thread until
// the program is loaded.
const maxProcs = 4

// tune turns the garbage collector off until releaseStartMemory, unless memory exceeds the target.
// The start and the first command produce little garbage.
func tune() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryTarget)
	runtime.GOMAXPROCS(max(2, min(runtime.NumCPU(), maxProcs)))
}

// releaseAfter is when the memory of the start is released. It is late enough not to delay the
// first command, which usually arrives at once.
const releaseAfter = 2 * time.Second

// releaseStartMemory releases the memory that only the start needed. From then on the collector
// runs early, and memory is released after each busy period.
func releaseStartMemory() {
	debug.SetGCPercent(collectPercent)
	debug.FreeOSMemory()
	memtrim.ReleaseWhenIdle(memtrim.After)
}

// closeOnExec marks all open descriptors of this process close-on-exec. A library may have opened
// one before main, and a user's program that inherits it could bypass all checks of paths.
func closeOnExec() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors close-on-exec: %w", err)
	}
	return nil
}

// ignoreSignals prevents programs from ending the sandbox by a signal to PID 1. Only a request or
// the time limit ends it. The signals are received and discarded, not ignored, because child
// processes inherit ignored signals. Writing to a pipe without a reader then returns an error.
func ignoreSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
}

// directories are the directories that programs expect. They are created if the template lacks
// them, and otherwise not changed.
var directories = []struct {
	path string
	mode fs.FileMode
}{
	{"/run", 0o755},
	{"/run/lock", 0o777 | fs.ModeSticky},
	{"/tmp", 0o777 | fs.ModeSticky},
	{"/var/tmp", 0o777 | fs.ModeSticky},
}

// createDirectories creates the expected directories, and makes the user the owner of its own.
func createDirectories(cfg guest.Config, users identity.Users) error {
	for _, d := range directories {
		if err := createDir(d.path, d.mode); err != nil {
			return err
		}
	}
	user, err := users.Lookup(cfg.DefaultUser)
	if err != nil {
		return fmt.Errorf("default user: %w", err)
	}
	for _, dir := range []string{user.Home, "/workspace"} {
		if err := changeOwner(dir, user); err != nil {
			return err
		}
	}
	// Clients may name this user even if the image names another one. Without root on the host,
	// root owns all files of an image.
	if u, err := users.Lookup("user"); err == nil && u.Home == "/home/user" {
		return changeOwner(u.Home, u)
	}
	return nil
}

// createDir creates a directory if nothing exists at the path.
func createDir(path string, mode fs.FileMode) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, mode) // the umask removed bits
}

// changeOwner makes the user the owner of dir, which may be root's in the template. A workspace of
// the host already belongs to the user.
func changeOwner(dir string, user identity.User) error {
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
	if stat.Uid == user.UID || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if err := os.Lchown(dir, int(user.UID), int(user.GID)); !errors.Is(err, unix.EROFS) {
		return err
	}
	return nil // the policy made the directory read-only
}
