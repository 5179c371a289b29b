package crash_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// fixture is a sandbox whose server is killed during an operation.
type fixture struct {
	op    operation
	state string
	base  string   // a snapshot of the sandbox
	ids   []string // of all sandboxes so far, its own first

	// The current server, its client, and the sandbox there.
	s      *servetest.Server
	client *crannog.Client
	sb     *crannog.Sandbox
}

// newFixture creates a sandbox with files and memory, and restarts its server.
func newFixture(t *testing.T, op operation) *fixture {
	t.Helper()
	b := &fixture{op: op, state: t.TempDir()}
	b.serve(t)
	options := []crannog.CreateOption{crannog.Timeout(life)}
	if op.onEnd != (api.OnEnd{}) {
		options = append(options, crannog.OnEnd(op.onEnd))
	}
	var err error
	if b.sb, err = b.client.Create(t.Context(), options...); err != nil {
		t.Fatal(err)
	}
	b.ids = append(b.ids, b.sb.ID())
	b.prepareState(t)
	b.base = "base-" + b.sb.ID()
	if _, err := b.sb.Snapshot(t.Context(), api.CreateSnapshot{Name: b.base}); err != nil {
		t.Fatal(err)
	}
	// Each operation is the first of its kind in its server.
	b.s.Kill()
	b.serve(t)
	if b.sb, err = b.client.Get(t.Context(), b.sb.ID()); err != nil {
		t.Fatal(err)
	}
	return b
}

// serve starts a server.
func (b *fixture) serve(t *testing.T) {
	t.Helper()
	b.s = servetest.Start(t, program, b.state, b.op.flags...)
	b.client = b.s.Client(t)
}

// awaitReady waits until the server is ready for the operation.
func (b *fixture) awaitReady(t *testing.T) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		if stderr := b.s.Stderr(); !strings.Contains(stderr, b.op.readyLog) {
			return fmt.Errorf("control: the server never logged %q\n%s", b.op.readyLog, stderr)
		}
		return nil
	})
}

// The content of the sandbox: number is what its program remembers, and the lists are its files.
const (
	number        = 4711
	originalFiles = "file\nkeep.py"
	changedFiles  = "file\nkeep.py\nlater"
)

// prepareState gives the sandbox a file and a program with a number in memory.
func (b *fixture) prepareState(t *testing.T) {
	t.Helper()
	startCounter(t, b.sb, number)
	output(t, b.sb, "echo precious > /home/user/file; sync")
}

// startCounter starts a program with a number only in memory. It writes the number to a file on
// each SIGUSR1 and adds one on each SIGUSR2.
func startCounter(t *testing.T, sb *crannog.Sandbox, number int) {
	t.Helper()
	output(t, sb, fmt.Sprintf(`rm -f /tmp/up; cat > keep.py <<'X'
import signal, time
n = %d
def tell(*a):
    open("/tmp/told", "w").write(str(n))
def add(*a):
    global n
    n += 1
    open("/tmp/added", "w").close()
signal.signal(signal.SIGUSR1, tell)
signal.signal(signal.SIGUSR2, add)
open("/tmp/up", "w").close()
while True: signal.pause()
X
setsid python3 keep.py >/dev/null 2>&1 & while ! test -e /tmp/up; do sleep 0.02; done`, number))
}

// readCounter asks the program for its number.
func readCounter(t *testing.T, sb *crannog.Sandbox) string {
	t.Helper()
	return output(t, sb, `rm -f /tmp/told; pkill -USR1 -f '^python3 keep'; while ! test -s /tmp/told; do sleep 0.02; done; cat /tmp/told`)
}

// requireContent checks that a sandbox has its files and its memory, both of the same time.
func (b *fixture) requireContent(t *testing.T, sb *crannog.Sandbox) {
	t.Helper()
	want := number
	switch got := output(t, sb, "ls /home/user"); {
	case got == originalFiles:
	case got == changedFiles && b.op.rollsBack:
		want++
	default:
		t.Errorf("sandbox %s has the unexpected files %q", sb.ID(), got)
		return
	}
	if got := output(t, sb, "cat /home/user/file"); got != "precious" {
		t.Errorf("the file of %s has the content %q", sb.ID(), got)
	}
	if got := readCounter(t, sb); got != fmt.Sprint(want) {
		t.Errorf("the program of %s remembers %q, want %d", sb.ID(), got, want)
	}
}

// reconciled matches a server's report of what it reconciled.
var reconciled = regexp.MustCompile(`(lost|abandoned|finished|orphans|left|mended)=[1-9]\d*`)

// checkNextServer starts the next server, checks that no operation is half done, and uses the
// sandbox. done is set if the operation had completed before the kill. It returns a summary of the
// state.
func (b *fixture) checkNextServer(t *testing.T, done bool) string {
	t.Helper()
	b.serve(t)
	summary := b.stateAfterRestart(t)
	if summary == "paused" {
		if err := b.sb.Resume(t.Context(), life); err != nil {
			t.Fatalf("resume: %v\n%s", err, b.s.Stderr())
		}
		if b.op.filesOnly {
			startCounter(t, b.sb, number) // a boot does not keep memory
		}
	}
	if got := output(t, b.sb, "ls /home/user"); b.op.resets && got == "" {
		summary += " cleared"
		if got := output(t, b.sb, "pgrep -c python3 || true"); got != "0" {
			t.Errorf("the reset sandbox runs %s of its earlier programs", got)
		}
	} else {
		if done && (b.op.resets || b.op.rollsBack && got == changedFiles) {
			t.Errorf("the completed operation did not restore the files: got %q", got)
		}
		b.requireContent(t, b.sb)
	}
	if n := b.checkMadeSandboxes(t, done); n > 0 {
		summary += fmt.Sprintf(" and %d others", n)
	}
	for _, word := range reconciled.FindAllString(b.s.Stderr(), -1) {
		summary += " " + word
	}
	if t.Failed() {
		t.Log(b.s.Stderr())
	}
	return summary
}

// stateAfterRestart returns the sandbox's state once the next server has finished or undone the
// operation.
func (b *fixture) stateAfterRestart(t *testing.T) string {
	t.Helper()
	var err error
	if b.sb, err = b.client.Get(t.Context(), b.ids[0]); err != nil {
		t.Fatalf("get the sandbox from the next server: %v\n%s", err, b.s.Stderr())
	}
	var state string
	hosttest.EventuallyNoError(t, func() error {
		info, err := b.sb.Refresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The next server pauses a sandbox whose timeout has passed.
		if state = info.State; state == "paused" || state == "running" && !b.op.pauses {
			return nil
		}
		return fmt.Errorf("the sandbox stays %s\n%s", state, b.s.Stderr())
	})
	return state
}

// checkMadeSandboxes checks that the sandboxes that the operation has made are usable, ends them,
// and returns their number.
func (b *fixture) checkMadeSandboxes(t *testing.T, done bool) int {
	t.Helper()
	list, err := b.client.List(t.Context(), crannog.ListOptions{States: []string{"all"}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, one := range list {
		switch {
		case one.ID == b.ids[0] || one.State == "stopped":
			continue
		case one.State != "running":
			t.Errorf("sandbox %s is half created: %s", one.ID, one.State)
			continue
		}
		n++
		b.ids = append(b.ids, one.ID)
		sb, err := b.client.Get(t.Context(), one.ID)
		if err != nil {
			t.Fatal(err)
		}
		if !b.op.emptySandboxes {
			b.requireContent(t, sb)
		} else if got := output(t, sb, "ls /home/user"); got != "" {
			t.Errorf("sandbox %s has the files %q, want none", one.ID, got)
		}
		if err := sb.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n > b.op.newSandboxes || done && n < b.op.newSandboxes {
		t.Errorf("the operation made %d sandboxes, want %d", n, b.op.newSandboxes)
	}
	return n
}

// checkSnapshots checks that each listed snapshot can be used, and removes all.
func (b *fixture) checkSnapshots(t *testing.T) {
	t.Helper()
	list, err := b.client.Snapshots(t.Context(), crannog.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Error("control: there is no snapshot")
	}
	for _, snapshot := range list {
		other, err := b.client.Create(t.Context(), crannog.Template(snapshot.ID), crannog.Timeout(life))
		if err != nil {
			t.Errorf("snapshot %s: %v", snapshot.ID, err)
			continue
		}
		b.ids = append(b.ids, other.ID())
		if snapshot.FilesOnly {
			startCounter(t, other, number) // a boot does not keep memory
		}
		b.requireContent(t, other)
		if err := other.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if err := b.client.RemoveSnapshot(t.Context(), snapshot.ID); err != nil {
			t.Error(err)
		}
	}
}
