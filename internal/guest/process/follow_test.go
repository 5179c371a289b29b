package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// lateStart is a Python program that starts a process after the interrupt was sent to its group. It
// blocks the signal until the new process is a member, and then dies from it.
const lateStart = `import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print("ready", flush=True)
while signal.SIGINT not in signal.sigpending():
    time.sleep(0.001)
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.execvp("sleep", ["sleep", "1000"])
with open(sys.argv[1], "w") as f:
    f.write(str(pid))
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
time.sleep(1000)
`

// lateStartCommand writes the program to a file. It returns the shell command that runs it, and the
// file to which it writes the PID of the new process.
func (b *testService) lateStartCommand(t *testing.T) (command, pid string) {
	t.Helper()
	hosttest.Need(t, hosttest.Python)
	script, pid := filepath.Join(b.home, "late.py"), filepath.Join(b.home, "pid")
	if err := os.WriteFile(script, []byte(lateStart), 0o600); err != nil {
		t.Fatal(err)
	}
	return "python3 " + script + " " + pid, pid
}

// waitForEnd waits until the process whose PID is in a file has ended.
func waitForEnd(t *testing.T, file string) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		data, err := os.ReadFile(file)
		if pid := string(data); err != nil || pid == "" || alive(pid) {
			return fmt.Errorf("process %q still runs (%v)", pid, err)
		}
		return nil
	})
}

// An interrupt that arrives while a program starts another one ends both.
func TestInterruptDuringStart(t *testing.T) {
	b := newTestService(t, nil)
	command, pid := b.lateStartCommand(t)
	s := b.start(t, shell("exec "+command))
	s.until("ready")
	if err := b.signal(t, s.selector(), 2); err != nil {
		t.Fatal(err)
	}
	if r := s.finish(); r.end.GetStatus() != "signal: interrupt" {
		t.Errorf("got %+v, want the end by SIGINT", r)
	}
	waitForEnd(t, pid)
}

// Ctrl-C in a terminal ends both too, even if the shell gives each job its own group.
func TestTerminalInterruptDuringStart(t *testing.T) {
	b := newTestService(t, nil)
	command, pid := b.lateStartCommand(t)
	req := terminal("")
	req.Process.Cmd, req.Process.Args = "bash", []string{"--norc", "--noprofile", "-i"}
	s := b.start(t, req)
	if err := b.typeIn(t, s, command+"\n"); err != nil {
		t.Fatal(err)
	}
	s.until("ready\r\n")
	if err := b.typeIn(t, s, "\x03"); err != nil {
		t.Fatal(err)
	}
	waitForEnd(t, pid)
	if err := b.signal(t, s.selector(), pb.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.finish()
}

// A program that handles the interrupt gets it only once, and so do its clean-up processes.
func TestHandledInterruptIsSentOnce(t *testing.T) {
	b := newTestService(t, nil)
	script := filepath.Join(b.home, "clean.sh")
	if err := os.WriteFile(script, []byte("trap 'echo second' INT\necho cleaning\nread x\necho clean\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := b.start(t, shell("trap 'sh "+script+"; exit 3' INT; echo ready; while :; do sleep 0.01; done"))
	s.until("ready")
	if err := b.signal(t, s.selector(), 2); err != nil {
		t.Fatal(err)
	}
	s.until("cleaning")
	if err := b.feed(t, s, "go on\n"); err != nil {
		t.Fatal(err)
	}
	if r := s.finish(); !strings.Contains(r.stdout, "clean\n") || strings.Contains(r.stdout, "second") || r.end.GetExitCode() != 3 {
		t.Errorf("program that handles the interrupt: got %+v, want one interrupt and exit code 3", r)
	}
}
