package abuse_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var processAttacks = []attack{
	{name: "fork bomb", users: both, run: forkBomb},
	{name: "forks", users: both, options: limits(func(l *api.Limits) { l.MemoryBytes = 1 << 30 }), run: forks},
	{name: "threads", users: both, run: threads},
	{name: "orphans", users: ordinary, options: limits(func(l *api.Limits) { l.PIDs = 256 }), run: orphans},
	{name: "spin", users: ordinary, run: spin},
	{name: "ignored signal", users: both, run: ignoredSignal},
	{name: "daemon", users: both, run: daemon},
}

// limits returns the small limits with a change.
func limits(change func(*api.Limits)) []crannog.CreateOption {
	l := small
	change(&l)
	return []crannog.CreateOption{crannog.Limits(l)}
}

// forkBomb uses all processes. The sandbox may be unusable then; the test's cleanup checks that it
// can be removed.
func forkBomb(t *testing.T, b *testSandbox) {
	res, err := b.exec(t, 4*time.Second, "bomb() { bomb | bomb & }; bomb; sleep 3")
	t.Logf("the fork bomb: %v, exit code %d, %q, limit %q", err, res.ExitCode, head(res.Stderr), res.Hit)
}

// forks counts how many processes there can be. A control with a higher limit shows that the limit
// is the reason.
func forks(t *testing.T, b *testSandbox) {
	maximum := func(b *testSandbox) int {
		text := strings.Replace(countProcesses, "START", "os.fork() == 0 and (os.closerange(0, 3), time.sleep(60), os._exit(0))", 1)
		return b.number(t, 30*time.Second, text)
	}
	if n := maximum(b); n > int(small.PIDs) || n < 10 {
		t.Errorf("got %d processes with a limit of %d", n, small.PIDs)
	}
	control := b.environment.newSandbox(t, b.user, limits(func(l *api.Limits) { l.PIDs, l.MemoryBytes = 100, 1<<30 })...)
	if n := maximum(control); n <= int(small.PIDs) || n > 100 {
		t.Errorf("control: got %d processes with a limit of 100", n)
	}
}

// threads counts how many threads there can be, which count as processes.
func threads(t *testing.T, b *testSandbox) {
	text := strings.Replace(countProcesses, "START", "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", 1)
	if n := b.number(t, 30*time.Second, text); n > int(small.PIDs) || n < 10 {
		t.Errorf("got %d threads with a limit of %d", n, small.PIDs)
	}
	requireAnswer(t, b.Sandbox)
}

// countProcesses starts a process or thread repeatedly until that fails, and prints how often it
// succeeded.
const countProcesses = `
import os, threading, time
n = 0
try:
    while n < 1000:
        START
        n += 1
except (OSError, RuntimeError):
    pass
print(n, flush=True)
os._exit(0)
`

// orphans leaves a thousand children to the sandbox's first process, which must reap each.
func orphans(t *testing.T, b *testSandbox) {
	b.sh(t, "i=0; while [ $i -lt 1000 ]; do (true & true & true &); i=$((i+3)); done")
	hosttest.EventuallyNoError(t, func() error {
		if left := b.sh(t, "grep -l '^State:.*Z' /proc/[0-9]*/status 2>/dev/null | wc -l"); left != "0" {
			return fmt.Errorf("%s zombie processes are left", left)
		}
		return nil
	})
}

// spin uses the processor beyond the command's time limit.
func spin(t *testing.T, b *testSandbox) {
	began := time.Now()
	res, err := b.python(t, time.Second, "while True: pass")
	if err != nil || res.Hit != api.HitTimeout || res.ExitCode != 124 {
		t.Errorf("an endless loop: got %v, %+v, want it ended at its time limit", err, res)
	}
	// A longer time means that the sandbox's general limit ended the command.
	if took := time.Since(began); took >= commandLimit {
		t.Errorf("the command took %v, so only the sandbox's general limit ended it", took)
	}
	requireAnswer(t, b.Sandbox)
}

// ignoredSignal runs a program that ignores the signals to end.
func ignoredSignal(t *testing.T, b *testSandbox) {
	res, err := b.exec(t, time.Second, "trap '' TERM INT HUP QUIT; while :; do sleep 0.1; done")
	if err != nil || res.Hit != api.HitTimeout {
		t.Errorf("a program that ignores signals: got %v, %+v, want it ended at its time limit", err, res)
	}
	hosttest.EventuallyNoError(t, func() error {
		if left := b.sh(t, "pgrep -fc 'trap .. TERM' | cat"); left != "0" && left != "1" { // pgrep may count its own shell
			return fmt.Errorf("%s processes outlived their time limit", left)
		}
		return nil
	})
}

// daemon runs a program that leaves its parent and its session. It may run as long as the sandbox
// does; servetest.NothingLeft looks for it afterwards.
func daemon(t *testing.T, b *testSandbox) {
	res, err := b.python(t, 30*time.Second, `
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        with open("/tmp/daemon", "w") as f:
            f.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
`)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("start the daemon: %v %+v", err, res)
	}
	hosttest.EventuallyNoError(t, func() error {
		res, err := b.exec(t, 30*time.Second, "kill -0 $(cat /tmp/daemon)")
		if err != nil || res.ExitCode != 0 {
			return fmt.Errorf("control: no daemon runs: %v %+v", err, res)
		}
		return nil
	})
}

// head returns the beginning of what a program printed.
func head(text string) string { return text[:min(len(text), 100)] }
