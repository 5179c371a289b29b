// Package abuse_test runs hostile programs and clients against a real server and checks that others
// are not affected.
package abuse_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// maxMemory limits the server's memory during an attack. It is generous: it only catches a server
// that grows without end.
const maxMemory = 200 << 20

// commandLimit is the time limit of the sandboxes' commands. It only bounds a hang: an attack that
// must end earlier has its own limit.
var commandLimit = hosttest.Patience(hosttest.Hang)

// environment is a server with a sandbox that attacks nothing, the sibling of attacked ones.
type environment struct {
	*servetest.Server
	client  *crannog.Client
	sibling *crannog.Sandbox

	mu  sync.Mutex
	ids []string // of all sandboxes, to search for leftovers at the end
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	s := servetest.Start(t, program, t.TempDir())
	a := &environment{Server: s, client: s.Client(t)}
	a.sibling = a.create(t, crannog.Name("sibling"))
	return a
}

// close stops the server and checks that nothing is left of its sandboxes.
func (a *environment) close(t *testing.T) {
	t.Helper()
	list, err := a.client.List(t.Context(), crannog.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		if sb.ID != a.sibling.ID() {
			t.Errorf("still running: %s", sb.ID)
		}
	}
	if err := a.sibling.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	servetest.NothingLeft(t, a.State, a.ids...)
	a.Stop(t)
}

// small keeps an attack cheap for the machine that runs the tests.
var small = api.Limits{
	MemoryBytes: 256 << 20, CPUMillis: 1000, PIDs: 64, DiskBytes: 64 << 20, CommandTimeoutSeconds: commandLimit.Seconds(),
}

func (a *environment) create(t *testing.T, options ...crannog.CreateOption) *crannog.Sandbox {
	t.Helper()
	options = append([]crannog.CreateOption{crannog.Timeout(hosttest.Patience(time.Hour)), crannog.Limits(small)}, options...)
	sb, err := a.client.Create(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.ids = append(a.ids, sb.ID())
	a.mu.Unlock()
	return sb
}

// testSandbox is the sandbox of one attack, used as one of its users.
type testSandbox struct {
	*crannog.Sandbox
	environment *environment
	user        string
}

// newSandbox creates a sandbox, and removes it when the test ends.
func (a *environment) newSandbox(t *testing.T, user string, options ...crannog.CreateOption) *testSandbox {
	t.Helper()
	sb := a.create(t, options...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience(hosttest.Hang))
		defer cancel()
		// A sandbox that died of its attack is removed already; Kill then succeeds.
		if err := sb.Kill(ctx); err != nil {
			t.Errorf("remove the attacked sandbox: %v", err)
		}
	})
	return &testSandbox{Sandbox: sb, environment: a, user: user}
}

// exec runs a shell line within a time limit, which is scaled by the speed of the machine, and
// returns how it ended.
func (b *testSandbox) exec(t *testing.T, limit time.Duration, line string) (api.ExecResult, error) {
	t.Helper()
	return b.Exec(t.Context(), api.Exec{Cmd: []string{"sh", "-c", line}, User: b.user, TimeoutSeconds: hosttest.Patience(limit).Seconds()})
}

// sh runs a shell line that must succeed.
func (b *testSandbox) sh(t *testing.T, line string) string {
	t.Helper()
	res, err := b.exec(t, 30*time.Second, line)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("run %s: %v %+v", line, err, res)
	}
	return strings.TrimSpace(res.Stdout)
}

// python runs a program within a time limit, scaled in the same way.
func (b *testSandbox) python(t *testing.T, limit time.Duration, text string) (api.ExecResult, error) {
	t.Helper()
	return b.Exec(t.Context(), api.Exec{Cmd: []string{"python3", "-c", text}, User: b.user, TimeoutSeconds: hosttest.Patience(limit).Seconds()})
}

// number runs a program that prints a number.
func (b *testSandbox) number(t *testing.T, limit time.Duration, text string) int {
	t.Helper()
	res, err := b.python(t, limit, text)
	n, bad := strconv.Atoi(strings.TrimSpace(res.Stdout))
	if err != nil || bad != nil {
		t.Fatalf("run a program that prints a number: %v %+v", err, res)
	}
	return n
}

// requireAnswer checks that a sandbox executes commands.
func requireAnswer(t *testing.T, sb *crannog.Sandbox) {
	t.Helper()
	res, err := sb.Exec(hosttest.Context(t), api.Exec{Cmd: []string{"echo", "here"}})
	if err != nil || res.Stdout != "here\n" {
		t.Fatalf("the sandbox does not answer: %v %+v", err, res)
	}
}

// observe runs commands in the sibling during an attack. It returns a function that stops and
// checks that every command was answered and that the server stayed small. How long an answer takes
// depends on the machine and is only logged.
func (a *environment) observe(t *testing.T) func() {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	var latencies []time.Duration
	var peak int64
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			began := time.Now()
			// The end of the observation must not cancel a command, which would look like a
			// failure.
			res, err := a.sibling.Exec(context.WithoutCancel(ctx), api.Exec{Cmd: []string{"echo", "here"}, TimeoutSeconds: commandLimit.Seconds()})
			if err != nil || res.Stdout != "here\n" {
				t.Errorf("the sibling does not answer: %v %+v", err, res)
				return
			}
			latencies = append(latencies, time.Since(began))
			peak = max(peak, a.memory(t))
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() {
		t.Helper()
		stop()
		<-done
		if len(latencies) == 0 {
			return // the goroutine has reported the failure
		}
		slices.Sort(latencies)
		p95 := latencies[(len(latencies)-1)*95/100]
		t.Logf("sibling: p95 %v of %d; server: %d MiB at most", p95.Round(time.Millisecond), len(latencies), peak>>20)
		if peak > maxMemory {
			t.Errorf("the server's memory: got %d MiB, want at most %d MiB", peak>>20, maxMemory>>20)
		}
	}
}

// memory returns the server's anonymous memory. Pages of the program do not count, because the
// system can reclaim them.
func (a *environment) memory(t *testing.T) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.PID()))
	if err != nil {
		t.Errorf("the server is gone: %v\n%s", err, a.Stderr())
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	t.Error("/proc has no RssAnon of the server")
	return 0
}

// requireFilesClosed waits until the server has about as many open files as before.
func (a *environment) requireFilesClosed(t *testing.T, before int) {
	t.Helper()
	// The server keeps 16 idle connections to a sandbox and 4 to its engine open, and some for the
	// sibling.
	const spare = 24
	hosttest.EventuallyNoError(t, func() error {
		if now := len(hosttest.Descriptors(t, a.PID())); now > before+spare {
			return fmt.Errorf("the server has %d descriptors open; before the attack it had %d", now, before)
		}
		return nil
	})
}
