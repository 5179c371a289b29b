package landlock_test

import (
	"errors"
	"io/fs"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/landlock"
)

func TestFileRightsPerVersion(t *testing.T) {
	for version, want := range map[int]int{0: 0, 1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 100: 16} {
		if got := bits.OnesCount64(landlock.Files(version)); got != want {
			t.Errorf("version %d has %d rights, want %d", version, got, want)
		}
	}
	if landlock.Files(landlock.Refer-1)&unix.LANDLOCK_ACCESS_FS_REFER != 0 || landlock.Files(landlock.Refer)&unix.LANDLOCK_ACCESS_FS_REFER == 0 {
		t.Error("Refer is not the version that adds moves between directories")
	}
}

// kernelVersion returns the kernel's Landlock version.
func kernelVersion(t *testing.T) int {
	t.Helper()
	version, err := landlock.Version()
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// The kernel refuses a rule set without rights, so a caller cannot mistake an empty one for a
// restriction.
func TestNewRejectsEmptyRuleset(t *testing.T) {
	if _, err := landlock.New(0, 0); err == nil {
		t.Error("New accepted a rule set that refuses nothing")
	}
}

func TestRestrictLimitsFilesAndPorts(t *testing.T) {
	version := kernelVersion(t)
	if version == 0 {
		if _, err := landlock.New(unix.LANDLOCK_ACCESS_FS_READ_FILE, 0); err == nil {
			t.Error("a kernel without Landlock made a rule set")
		}
		return
	}
	dir := t.TempDir()
	for _, name := range []string{"open/file", "closed/file"} {
		name = filepath.Join(dir, name)
		if err := os.Mkdir(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	network := uint64(0)
	if version >= landlock.BindTCP {
		network = unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	onThread(func() {
		r, err := landlock.New(landlock.Files(version), network)
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		if err := r.Allow(filepath.Join(dir, "open"), unix.LANDLOCK_ACCESS_FS_READ_FILE); err != nil {
			t.Error(err)
		}
		if err := r.Allow(filepath.Join(dir, "absent"), unix.LANDLOCK_ACCESS_FS_READ_FILE); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a path that does not exist: %v", err)
		}
		// A file has no entries.
		if err := r.Allow(filepath.Join(dir, "open/file"), unix.LANDLOCK_ACCESS_FS_READ_DIR); !errors.Is(err, unix.EINVAL) {
			t.Errorf("a right of directories on a file: %v", err)
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Error(err)
			return
		}
		if err := r.Restrict(onThisThread); err != nil {
			t.Error(err)
			return
		}
		if _, err := os.ReadFile(filepath.Join(dir, "open/file")); err != nil {
			t.Errorf("an allowed file: %v", err)
		}
		if _, err := os.ReadFile(filepath.Join(dir, "closed/file")); !errors.Is(err, unix.EACCES) {
			t.Errorf("a file that is not allowed: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "open/file"), nil, 0o600); !errors.Is(err, unix.EACCES) {
			t.Errorf("writing where only reading is allowed: %v", err)
		}
		if network != 0 {
			if err := bindTCP(); !errors.Is(err, unix.EACCES) {
				t.Errorf("bind a TCP port: got %v, want EACCES", err)
			}
		}
	})
	if _, err := os.ReadFile(filepath.Join(dir, "closed/file")); err != nil {
		t.Errorf("reading on another thread: %v", err)
	}
}

func bindTCP() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
}

// onThread runs f on a thread that ends with it, because its restrictions cannot be lifted.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

func onThisThread(trap, a1, a2, a3 uintptr) error {
	if _, _, errno := unix.RawSyscall(trap, a1, a2, a3); errno != 0 {
		return errno
	}
	return nil
}
