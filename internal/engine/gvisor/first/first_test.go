package first

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestUnmounting(t *testing.T) {
	if fd, dir, ok := unmounting([]string{"/proc/self/exe", "umount", "--sync-fd=3", "/proc"}); !ok || fd != 3 || dir != "/proc" {
		t.Errorf("%d %q %t", fd, dir, ok)
	}
	for _, args := range [][]string{
		nil, {"/proc/self/exe"}, {"/proc/self/exe", "umount"}, {"/proc/self/exe", "umount", "--sync-fd=3"},
		{"/proc/self/exe", "umount", "--sync-fd=3", "/proc", "/sys"}, {"/proc/self/exe", "umount", "--sync-fd=3", "proc"},
		{"/proc/self/exe", "umount", "--sync-fd=x", "/proc"}, {"/proc/self/exe", "umount", "--sync-fd=-1", "/proc"}, {"/proc/self/exe", "umount", "--sync-fd=0", "/proc"},
		{"/proc/self/exe", "umount", "3", "/proc"}, {"/proc/self/exe", "boot", "--sync-fd=3", "/proc"}, {"crannog", "umount", "--sync-fd=3", "/proc"},
	} {
		if _, _, ok := unmounting(args); ok {
			t.Errorf("%q was taken", args)
		}
	}
}

// TestUnmounts starts this very program as gVisor does.
func TestUnmounts(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread stays in another mount namespace. It is never unlocked, so it ends with this
		// goroutine.
		runtime.LockOSThread()
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
			t.Error(err)
			return
		}
		for _, c := range []struct {
			say  string
			left bool
		}{{"", true}, {"x", false}} {
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
				t.Error(err)
				return
			}
			err := unmounter(t, dir, c.say)
			if left := mounted(t, dir); left != c.left || (err == nil) == c.left {
				t.Errorf("told %q: %v, still mounted: %t", c.say, err, left)
			}
			if c.left {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	<-done
}

func unmounter(t *testing.T, dir, say string) error {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	defer write.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Args, cmd.ExtraFiles = []string{"/proc/self/exe", "umount", "--sync-fd=3", dir}, []*os.File{read}
	if err := cmd.Start(); err != nil {
		return err
	}
	if !mounted(t, dir) {
		t.Error("nothing is mounted before the byte")
	}
	if _, err := write.WriteString(say); err != nil {
		return err
	}
	write.Close()
	return cmd.Wait()
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	return bytes.Contains(data, []byte(" "+strings.TrimSuffix(dir, "/")+" "))
}
