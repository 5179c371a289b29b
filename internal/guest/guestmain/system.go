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
// runs early and what a busy time took goes back after it.
func settle() {
	debug.SetGCPercent(collectPercent)
	debug.FreeOSMemory()
	memtrim.GiveBack(memtrim.After)
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

// furnish makes the directories that programs expect, and the user's the
// user's.
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
	// In an image that names another user, clients may still name this one. Without root
	// on the host, all files of an image are root's.
	if other, err := users.Lookup("user"); err == nil && other.Home == "/home/user" {
		return hand(other.Home, other)
	}
	return nil
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

// hand makes dir the user's, as a template has it for root. A workspace of the
// host's is the user's already.
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
	return nil // the policy has sealed it
}
