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

// leaver is a shell's command that leaves a process behind with its own session, without an
// environment and without our output, whose parent is the first process, and which keeps forking.
// It writes its number to a file.
func leaver(file string) string {
	return "(setsid env -i sh -c 'sh -c \"echo \\$\\$ > " + file + "; for i in \\$(/usr/bin/seq 9999); do /bin/sleep 0.01; done\" &' >/dev/null 2>&1 </dev/null &)\n" +
		"until [ -s " + file + " ]; do sleep 0.01; done\n"
}

func pidIn(t *testing.T, file string) int {
	t.Helper()
	output, err := os.ReadFile(file)
	pid, errNumber := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil || errNumber != nil {
		t.Fatalf("%q, %v", output, err)
	}
	return pid
}

// endWithLeaver ends a command that left a process behind by a signal, or by its time limit, and
// returns the number of that process.
func (b *bench) endWithLeaver(t *testing.T, file string, sig pb.Signal) int {
	t.Helper()
	// Only the program that stays reports that it is up: a shell that has caught a signal just
	// before it becomes another program forgets it.
	command := leaver(file) + "echo up > " + file + ".up; exec tail -n 1 -f " + file + ".up"
	if sig == 0 {
		b.expire(t, command, file)
		return pidIn(t, file)
	}
	s := b.start(t, shell(command))
	s.until("up")
	pid := pidIn(t, file)
	if !alive(strconv.Itoa(pid)) {
		t.Fatal("control: a process that left the group has ended")
	}
	if err := b.signal(t, s.selector(), sig); err != nil {
		t.Fatal(err)
	}
	s.finish()
	return pid
}

// marks checks that the kernel supports marks, as Linux and a sandbox's do.
var marks = hosttest.Requirement{Name: "kernel that takes marks", Has: func() bool { return lineage.New() != lineage.None }}

// Signals of a terminal, for which the protocol has no names.
const hangup, interrupt pb.Signal = 1, 2

// F6: a process that left its command's process group also ends when the command is killed, asked
// to end, or over its time.
func TestF6EndReachesProcessesOutsideTheGroup(t *testing.T) {
	hosttest.Need(t, marks)
	// Of a process that ignores a signal, as below nohup, all programs ignore it; of one that
	// handles it they do not.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, unix.SIGHUP, unix.SIGINT)
	t.Cleanup(func() { signal.Stop(handled) })
	b := newBench(t, nil)
	bystander := filepath.Join(b.home, "bystander")
	other := b.start(t, shell(leaver(bystander)+"echo up; wait"))
	other.until("up")
	other.finish() // it ended by itself: what it left stays
	for name, sig := range map[string]pb.Signal{
		"kill": pb.Signal_SIGNAL_SIGKILL, "term": pb.Signal_SIGNAL_SIGTERM, "time": 0,
		// A terminal's signals go to the process group, and programs survive them with nohup and
		// setsid. A shell makes its background jobs ignore SIGINT, but not SIGHUP.
		"int": interrupt, "hup": hangup,
	} {
		pid := b.endWithLeaver(t, filepath.Join(b.home, name), sig)
		if sig != interrupt && sig != hangup {
			hosttest.Eventually(t, name+": what left the group has ended", func() bool { return !alive(strconv.Itoa(pid)) })
			continue
		}
		if !alive(strconv.Itoa(pid)) {
			t.Errorf("%s ended what left the group", name)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	pid := pidIn(t, bystander)
	if !alive(strconv.Itoa(pid)) {
		t.Error("what another command left in the background was ended too")
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

// Each process is shown with the command that it descends from, even one that has ended.
func TestF6ProcessesHaveTheirCommand(t *testing.T) {
	hosttest.Need(t, marks)
	b := newBench(t, nil)
	file, tag := filepath.Join(b.home, "left"), "mine"
	req := shell(leaver(file) + "echo up; read x")
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
		t.Errorf("a process that left the group descends from %+v", c)
	}
	if own := origin(int(s.pid)); own == nil || own.PID != int(s.pid) {
		t.Errorf("the command descends from %+v", own)
	}
	if none := origin(os.Getpid()); none != nil {
		t.Errorf("a process that no command had started descends from %+v", none)
	}
	if err := b.closeStdin(t, s); err != nil {
		t.Fatal(err)
	}
	s.finish()
	if c := origin(left); c == nil || c.PID != int(s.pid) {
		t.Errorf("afterwards it descends from %+v", c)
	}
	if err := unix.Kill(left, unix.SIGKILL); err != nil {
		t.Error(err)
	}
}
