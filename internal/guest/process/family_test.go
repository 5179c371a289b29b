package process_test

import (
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/census"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/lineage"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// leavingCommand returns a shell command that leaves a process in a session of its own, without the
// command's environment and output. Its parent is PID 1, and it keeps forking. It writes its PID to
// a file.
func leavingCommand(file string) string {
	return "(setsid env -i sh -c 'sh -c \"echo \\$\\$ > " + file + "; for i in \\$(/usr/bin/seq 9999); do /bin/sleep 0.01; done\" &' >/dev/null 2>&1 </dev/null &)\n" +
		"until [ -s " + file + " ]; do sleep 0.01; done\n"
}

// pidIn returns the PID in a file.
func pidIn(t *testing.T, file string) int {
	t.Helper()
	output, err := os.ReadFile(file)
	pid, errNumber := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil || errNumber != nil {
		t.Fatalf("got %q, %v, want a PID", output, err)
	}
	return pid
}

// endLeaving runs a command that leaves a process, ends the command by a signal or, if sig is zero,
// by its time limit, and returns the PID of the left process.
func (b *testService) endLeaving(t *testing.T, file string, sig pb.Signal) int {
	t.Helper()
	// The last program prints the text that this test waits for. A shell that gets a signal just
	// before its exec would lose it.
	command := leavingCommand(file) + "echo up > " + file + ".up; exec tail -n 1 -f " + file + ".up"
	if sig == 0 {
		b.expire(t, command, file)
		return pidIn(t, file)
	}
	s := b.start(t, shell(command))
	s.until("up")
	pid := pidIn(t, file)
	if !alive(strconv.Itoa(pid)) {
		t.Fatal("control: the left process ended before the signal")
	}
	if err := b.signal(t, s.selector(), sig); err != nil {
		t.Fatal(err)
	}
	s.finish()
	return pid
}

// kernelMarks requires a kernel that supports marks, as Linux and gVisor do.
var kernelMarks = hosttest.Requirement{Name: "kernel that takes marks", Has: func() bool { return lineage.New() != lineage.None }}

// Signals of a terminal, for which the protocol has no names.
const hangup, interrupt pb.Signal = 1, 2

// F6: a process that left its command's process group also ends when the command gets SIGKILL or
// SIGTERM, or reaches its time limit.
func TestF6SignalReachesProcessesOutsideTheGroup(t *testing.T) {
	hosttest.Need(t, kernelMarks)
	// If this test runs below nohup, its child processes inherit the ignored signals. Handled
	// signals are not inherited.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, unix.SIGHUP, unix.SIGINT)
	t.Cleanup(func() { signal.Stop(handled) })
	b := newTestService(t, nil)
	otherFile := filepath.Join(b.home, "bystander")
	other := b.start(t, shell(leavingCommand(otherFile)+"echo up; wait"))
	other.until("up")
	other.finish() // it ended without a signal, so the left process stays
	for name, sig := range map[string]pb.Signal{
		"kill": pb.Signal_SIGNAL_SIGKILL, "term": pb.Signal_SIGNAL_SIGTERM, "time": 0,
		// The signals of a terminal are sent to the process group only, so that nohup and setsid
		// protect from them. A shell makes its background jobs ignore SIGINT, but not SIGHUP.
		"int": interrupt, "hup": hangup,
	} {
		pid := b.endLeaving(t, filepath.Join(b.home, name), sig)
		if sig != interrupt && sig != hangup {
			hosttest.Eventually(t, name+": the left process has ended", func() bool { return !alive(strconv.Itoa(pid)) })
			continue
		}
		if !alive(strconv.Itoa(pid)) {
			t.Errorf("%s: the left process was ended too", name)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	pid := pidIn(t, otherFile)
	if !alive(strconv.Itoa(pid)) {
		t.Error("the process that another command left was ended too")
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

// The census names the command of each process, even if the process left the group or the command
// has ended.
func TestF6CensusNamesTheCommandOfAProcess(t *testing.T) {
	hosttest.Need(t, kernelMarks)
	b := newTestService(t, nil)
	file, tag := filepath.Join(b.home, "left"), "mine"
	req := shell(leavingCommand(file) + "echo up; read x")
	req.Tag = &tag
	s := b.start(t, req)
	s.until("up")
	left := pidIn(t, file)
	origin := func(pid int) *census.Command {
		c := census.Census{Processes: []census.Process{{PID: left}, {PID: int(s.pid)}, {PID: os.Getpid()}}}
		b.service.NameOrigins(&c)
		return c.Processes[slices.IndexFunc(c.Processes, func(p census.Process) bool { return p.PID == pid })].Command
	}
	c := origin(left)
	if c == nil || c.PID != int(s.pid) || c.Tag != tag || c.Ended || !strings.Contains(strings.Join(c.Args, " "), "/bin/sh -c") {
		t.Errorf("left process: got the command %+v", c)
	}
	if command := origin(int(s.pid)); command == nil || command.PID != int(s.pid) {
		t.Errorf("command: got the command %+v", command)
	}
	if none := origin(os.Getpid()); none != nil {
		t.Errorf("process without a command: got %+v", none)
	}
	if err := b.closeStdin(t, s); err != nil {
		t.Fatal(err)
	}
	s.finish()
	if c := origin(left); c == nil || c.PID != int(s.pid) {
		t.Errorf("left process after the command has ended: got %+v", c)
	}
	if err := unix.Kill(left, unix.SIGKILL); err != nil {
		t.Error(err)
	}
}
