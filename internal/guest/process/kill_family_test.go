package process

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/guest/lineage"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// sleeper starts a process that leads its own group and has a mark.
func sleeper(t *testing.T, mark lineage.Mark) (pid int, ended func() bool) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the test checks whether it was killed
		close(done)
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-done
	})
	if err := mark.Set(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// needMarks skips the test on a kernel without marks.
func needMarks(t *testing.T) {
	t.Helper()
	hosttest.Need(t, hosttest.Requirement{Name: "kernel that takes marks", Has: func() bool { return lineage.New() != lineage.None }})
}

// F6: all processes with the mark of a killed command are killed, whatever their group. Processes
// with another mark or without one are not.
func TestF6KillEndsOnlyTheFamily(t *testing.T) {
	needMarks(t)
	mark := lineage.New()
	var family, others []func() bool
	for range 3 {
		_, ended := sleeper(t, mark)
		family = append(family, ended)
	}
	for _, m := range []lineage.Mark{lineage.New(), lineage.None} {
		_, ended := sleeper(t, m)
		others = append(others, ended)
	}
	killFamily(lineage.None)
	for i, ended := range append(family, others...) {
		if ended() {
			t.Errorf("control: process %d has ended", i)
		}
	}
	killFamily(mark)
	for i, ended := range family {
		hosttest.Eventually(t, "process "+strconv.Itoa(i)+" of the family has ended", ended)
	}
	for i, ended := range others {
		if ended() {
			t.Errorf("other process %d has ended", i)
		}
	}
}

// F6: when a command and its group have ended, the kernel may reuse the number for another group,
// which must not get the signals of the command.
func TestF6ReusedGroupIsNotSignalled(t *testing.T) {
	needMarks(t)
	mark := lineage.New()
	pid, ended := sleeper(t, lineage.New())
	gone := &process{pid: pid, mark: mark, gone: true}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := gone.signal(sig); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%v: got %v, want ESRCH", sig, err)
		}
	}
	killFamily(mark)
	if ended() {
		t.Error("another command's group was signalled")
	}
	// Control: a process that a command has left in its own group is signalled. It has a new mark,
	// because the SIGKILL above may still be killing processes with the first one.
	mark = lineage.New()
	pid, ended = sleeper(t, mark)
	if err := (&process{pid: pid, mark: mark, gone: true}).signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	hosttest.Eventually(t, "the left process has ended", ended)
}
