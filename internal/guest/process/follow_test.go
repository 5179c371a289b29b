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

// late starts a program after the interrupt was sent to its group: it blocks the signal until the
// new program is a member, and then dies of it.
const late = `import os, signal, sys, time
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

// lateProgram writes the program and returns a shell's command for it, and the
// file that names what it has started.
func (b *bench) lateProgram(t *testing.T) (command, pid string) {
	t.Helper()
	hosttest.Need(t, hosttest.Python)
	script, pid := filepath.Join(b.home, "late.py"), filepath.Join(b.home, "pid")
	if err := os.WriteFile(script, []byte(late), 0o600); err != nil {
		t.Fatal(err)
	}
	return "python3 " + script + " " + pid, pid
}

// ends waits until the process that a file names has ended.
func ends(t *testing.T, file string) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		data, err := os.ReadFile(file)
		if pid := string(data); err != nil || pid == "" || alive(pid) {
			return fmt.Errorf("process %q still runs (%v)", pid, err)
		}
		return nil
	})
}

// An interrupt that arrives while a program starts another one ends that too.
func TestInterruptDuringAStart(t *testing.T) {
	b := newBench(t, nil)
	command, pid := b.lateProgram(t)
	s := b.start(t, shell("exec "+command))
	s.until("ready")
	if err := b.signal(t, s.selector(), 2); err != nil {
		t.Fatal(err)
	}
	if r := s.finish(); r.end.GetStatus() != "signal: interrupt" {
		t.Errorf("ended with %+v", r)
	}
	ends(t, pid)
}

// So does Ctrl-C in a terminal whose shell has jobs.
func TestTerminalInterruptDuringAStart(t *testing.T) {
	b := newBench(t, nil)
	command, pid := b.lateProgram(t)
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
	ends(t, pid)
	if err := b.signal(t, s.selector(), pb.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.finish()
}

// A program that handles the interrupt ends as it chooses, and so does what it starts to clean up.
func TestHandledInterrupt(t *testing.T) {
	b := newBench(t, nil)
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
		t.Errorf("got %+v", r)
	}
}
