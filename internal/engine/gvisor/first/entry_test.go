package first

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// linkedProgram is the program for gVisor's processes, which is linked with the entry of this
// package. Go links its test programs with the usual entry.
const linkedProgram = "../../../host/embedded/runtimebin/bin/crannog-runtime"

// TestEntryUnmountsBeforeRuntimeStarts starts the unmount command in a program that begins with this
// package. The entry handles the arguments that gVisor uses. With another descriptor, the Go runtime
// starts, which takes more than a hundred page faults.
func TestEntryUnmountsBeforeRuntimeStarts(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Requirement{Name: "the program for gVisor that make build embeds", Has: func() bool {
		_, err := os.Stat(linkedProgram)
		return err == nil
	}})
	program, err := filepath.Abs(linkedProgram)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, err := range []error{os.Mkdir(filepath.Join(root, "proc"), 0o755), os.WriteFile(filepath.Join(root, "program"), nil, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked, so the thread ends with this goroutine
		if err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(program, filepath.Join(root, "program"), "", unix.MS_BIND, "")); err != nil {
			t.Error(err)
			return
		}
		for _, c := range []struct {
			fd      int
			input   string // of the pipe
			status  int
			runtime bool // whether the Go runtime starts
		}{{3, "x", 0, false}, {3, "", exitFailed, false}, {4, "x", 0, true}} {
			unmountInRoot(t, root, c.fd, c.input, c.status, c.runtime)
		}
	}()
	<-done
}

// unmountInRoot runs the unmount command in a root with a mounted /proc and checks its result.
func unmountInRoot(t *testing.T, root string, fd int, input string, status int, runtimeStarts bool) {
	t.Helper()
	const startOfRuntime = 100 // page faults
	proc := filepath.Join(root, "proc")
	read, write, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return
	}
	defer read.Close()
	defer write.Close()
	if err := unix.Mount("proc", proc, "proc", 0, ""); err != nil {
		t.Error(err)
		return
	}
	cmd := exec.CommandContext(t.Context(), "/program")
	cmd.Args = []string{"/proc/self/exe", "umount", fmt.Sprintf("--sync-fd=%d", fd), "/proc"}
	cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{read, read}, &syscall.SysProcAttr{Chroot: root}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	if _, err := write.WriteString(input); err != nil {
		t.Error(err)
	}
	write.Close()
	_ = cmd.Wait() // the state below has the status
	stays := mounted(t, proc)
	if got := cmd.ProcessState.ExitCode(); got != status || stays != (status != 0) {
		t.Errorf("descriptor %d, input %q: status %d, still mounted: %t; want status %d", fd, input, got, stays, status)
	}
	if faults := cmd.ProcessState.SysUsage().(*syscall.Rusage).Minflt; (faults > startOfRuntime) != runtimeStarts {
		t.Errorf("descriptor %d: %d page faults; the Go runtime starts: want %t", fd, faults, runtimeStarts)
	}
	if stays {
		if err := unix.Unmount(proc, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}
}
