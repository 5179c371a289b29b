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

// Every sandbox pays for memory all the time, and for processor time only when something happens:
// so the collector runs early.
const (
	collectPercent = 40
	memoryTarget   = 32 << 20
)

// maxProcs limits the threads that run Go code at once. Two is the minimum: starting a process
// blocks one until the program is loaded.
const maxProcs = 4

// tune turns the collector off until settle, unless memory exceeds the target: the start and the
// first command leave little garbage.
func tune() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryTarget)
	runtime.GOMAXPROCS(max(2, min(runtime.NumCPU(), maxProcs)))
}

// settleAfter is when the start's memory is given back: later than the first command, which mostly
// comes at once and must not wait for it.
const settleAfter = 2 * time.Second

// settle gives back memory that only the start needed. From then on the collector runs early, and
// memory is given back after each busy time.
func settle() {
	debug.SetGCPercent(collectPercent)
	debug.FreeOSMemory()
	memtrim.GiveBack(memtrim.After)
}

// keepDescriptors marks the open descriptors of this process as not for its children. A library may
// have opened something before main, and one of our descriptors in a user's program would bypass
// every check of a path.
func keepDescriptors() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep descriptors: %w", err)
	}
	return nil
}

// ignoreSignals keeps the sandbox alive when a program signals its first process. Only a request or
// the time limit ends it. The signals are received and dropped rather than ignored, because
// children inherit ignored signals. A write to a pipe without a reader is an error instead of a
// signal.
func ignoreSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM)
}

// directories that programs expect. They are created if the template has none, and left alone
// otherwise.
var directories = []struct {
	path string
	mode fs.FileMode
}{
	{"/run", 0o755},
	{"/run/lock", 0o777 | fs.ModeSticky},
	{"/tmp", 0o777 | fs.ModeSticky},
	{"/var/tmp", 0o777 | fs.ModeSticky},
}

// furnish creates the directories that programs expect, and gives the user's directories to the
// user.
func furnish(cfg guest.Config, users identity.Users) error {
	for _, d := range directories {
		if err := ensure(d.path, d.mode); err != nil {
			return err
		}
	}
	user, err := users.Lookup(cfg.DefaultUser)
	if err != nil {
		return fmt.Errorf("default user: %w", err)
	}
	for _, dir := range []string{user.Home, "/workspace"} {
		if err := hand(dir, user); err != nil {
			return err
		}
	}
	// Clients may also name this user in an image that names another one. Without root on the host,
	// all files of an image belong to root.
	if other, err := users.Lookup("user"); err == nil && other.Home == "/home/user" {
		return hand(other.Home, other)
	}
	return nil
}

// ensure creates a directory if nothing exists at the path.
func ensure(path string, mode fs.FileMode) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, mode) // the umask removed bits
}

// hand gives dir to the user, because the template may have it as root's. A workspace of the host
// belongs to the user already.
func hand(dir string, user identity.User) error {
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
	return nil // the policy made it read-only
}
