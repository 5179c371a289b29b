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

// sleeper is a process that leads its own group and has a mark.
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

func needMarks(t *testing.T) {
	t.Helper()
	hosttest.Need(t, hosttest.Requirement{Name: "kernel that takes marks", Has: func() bool { return lineage.New() != lineage.None }})
}

// F6: the rest of a killed command is killed whatever its group is, and nothing of another command
// or without a mark.
func TestF6SweepEndsAFamilyAndNoOther(t *testing.T) {
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
	sweep(lineage.None)
	for i, ended := range append(family, others...) {
		if ended() {
			t.Errorf("control: %d has ended", i)
		}
	}
	sweep(mark)
	for i, ended := range family {
		hosttest.Eventually(t, "process "+strconv.Itoa(i)+" of the family has ended", ended)
	}
	for i, ended := range others {
		if ended() {
			t.Errorf("other process %d has ended", i)
		}
	}
}

// F6: once a command and its group are gone, another group may have their number, and must not get
// the command's signals.
func TestF6ReusedGroupNumber(t *testing.T) {
	needMarks(t)
	mark := lineage.New()
	pid, ended := sleeper(t, lineage.New())
	gone := &process{pid: pid, mark: mark, gone: true}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := gone.signal(sig); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%v: %v", sig, err)
		}
	}
	sweep(mark)
	if ended() {
		t.Error("another command's group was signalled")
	}
	// Control: a process that a command has left in its own group is signalled. It has another
	// mark, because the sweep after the kill above may still be looking for that one.
	mark = lineage.New()
	pid, ended = sleeper(t, mark)
	if err := (&process{pid: pid, mark: mark, gone: true}).signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	hosttest.Eventually(t, "what the command left has ended", ended)
}
