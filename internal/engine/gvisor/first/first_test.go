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

func TestParseUnmountArguments(t *testing.T) {
	if fd, dir, ok := parseUnmount([]string{"/proc/self/exe", "umount", "--sync-fd=3", "/proc"}); !ok || fd != 3 || dir != "/proc" {
		t.Errorf("got %d, %q, %t; want 3, /proc, true", fd, dir, ok)
	}
	for _, args := range [][]string{
		nil, {"/proc/self/exe"}, {"/proc/self/exe", "umount"}, {"/proc/self/exe", "umount", "--sync-fd=3"},
		{"/proc/self/exe", "umount", "--sync-fd=3", "/proc", "/sys"}, {"/proc/self/exe", "umount", "--sync-fd=3", "proc"},
		{"/proc/self/exe", "umount", "--sync-fd=x", "/proc"}, {"/proc/self/exe", "umount", "--sync-fd=-1", "/proc"}, {"/proc/self/exe", "umount", "--sync-fd=0", "/proc"},
		{"/proc/self/exe", "umount", "3", "/proc"}, {"/proc/self/exe", "boot", "--sync-fd=3", "/proc"}, {"crannog", "umount", "--sync-fd=3", "/proc"},
	} {
		if _, _, ok := parseUnmount(args); ok {
			t.Errorf("the arguments %q were accepted", args)
		}
	}
}

// TestUnmountCommand starts this test's program as gVisor starts its unmount command.
func TestUnmountCommand(t *testing.T) {
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
			input        string // of the pipe
			staysMounted bool
		}{{"", true}, {"x", false}} {
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
				t.Error(err)
				return
			}
			err := runUnmount(t, dir, c.input)
			if stays := mounted(t, dir); stays != c.staysMounted || (err == nil) == c.staysMounted {
				t.Errorf("with the input %q: %v, still mounted: %t, want %t", c.input, err, stays, c.staysMounted)
			}
			if c.staysMounted {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	<-done
}

// runUnmount runs the unmount command for a directory, with an input on its pipe.
func runUnmount(t *testing.T, dir, input string) error {
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
		t.Error("the directory was unmounted before the input")
	}
	if _, err := write.WriteString(input); err != nil {
		return err
	}
	write.Close()
	return cmd.Wait()
}

// mounted reports whether a file system is mounted at a directory.
func mounted(t *testing.T, dir string) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	return bytes.Contains(data, []byte(" "+strings.TrimSuffix(dir, "/")+" "))
}
