// Package abuse_test lets hostile programs and clients loose on a real server
// and checks whether anybody else notices.
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

// mostMemory bounds what an attack may make the server hold. It is generous:
// what it catches is a server that grows without end.
const mostMemory = 200 << 20

// commandLimit is the time limit of the sandboxes' commands. It only bounds a
// hang: an attack that is to end earlier has a limit of its own.
var commandLimit = hosttest.Patience(hosttest.Hang)

// arena is a server with a sandbox that attacks no one.
type arena struct {
	*servetest.Server
	client  *crannog.Client
	sibling *crannog.Sandbox

	mu  sync.Mutex
	ids []string // of all sandboxes, for the search at the end
}

func newArena(t *testing.T) *arena {
	t.Helper()
	s := servetest.Start(t, program, t.TempDir())
	a := &arena{Server: s, client: s.Client(t)}
	a.sibling = a.create(t, crannog.Name("sibling"))
	return a
}

// close ends the server and looks for what is left.
func (a *arena) close(t *testing.T) {
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

// small keeps an attack cheap for the machine that the tests run on.
var small = api.Limits{
	MemoryBytes: 256 << 20, CPUMillis: 1000, PIDs: 64, DiskBytes: 64 << 20, CommandTimeoutSeconds: commandLimit.Seconds(),
}

func (a *arena) create(t *testing.T, options ...crannog.CreateOption) *crannog.Sandbox {
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

// box is the sandbox of one attack, seen as one of its users.
type box struct {
	*crannog.Sandbox
	arena *arena
	user  string
}

// box makes a sandbox that ends with the test, whatever was done to it.
func (a *arena) box(t *testing.T, user string, options ...crannog.CreateOption) *box {
	t.Helper()
	sb := a.create(t, options...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience(hosttest.Hang))
		defer cancel()
		// One that died of its attack is removed already, which is a success.
		if err := sb.Kill(ctx); err != nil {
			t.Errorf("remove the attacked sandbox: %v", err)
		}
	})
	return &box{Sandbox: sb, arena: a, user: user}
}

// exec runs a shell line within a time, which is scaled by the speed of the
// machine, and returns how it ended.
func (b *box) exec(t *testing.T, limit time.Duration, line string) (api.ExecResult, error) {
	t.Helper()
	return b.Exec(t.Context(), api.Exec{Cmd: []string{"sh", "-c", line}, User: b.user, TimeoutSeconds: hosttest.Patience(limit).Seconds()})
}

// sh runs a shell line that must succeed.
func (b *box) sh(t *testing.T, line string) string {
	t.Helper()
	res, err := b.exec(t, 30*time.Second, line)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %v %+v", line, err, res)
	}
	return strings.TrimSpace(res.Stdout)
}

// python runs a program within a time, scaled in the same way.
func (b *box) python(t *testing.T, limit time.Duration, text string) (api.ExecResult, error) {
	t.Helper()
	return b.Exec(t.Context(), api.Exec{Cmd: []string{"python3", "-c", text}, User: b.user, TimeoutSeconds: hosttest.Patience(limit).Seconds()})
}

// number runs a program that prints a number.
func (b *box) number(t *testing.T, limit time.Duration, text string) int {
	t.Helper()
	res, err := b.python(t, limit, text)
	n, bad := strconv.Atoi(strings.TrimSpace(res.Stdout))
	if err != nil || bad != nil {
		t.Fatalf("%v %+v", err, res)
	}
	return n
}

// answers asserts that a sandbox does what it is told.
func answers(t *testing.T, sb *crannog.Sandbox) {
	t.Helper()
	res, err := sb.Exec(hosttest.Context(t), api.Exec{Cmd: []string{"echo", "here"}})
	if err != nil || res.Stdout != "here\n" {
		t.Fatalf("the sandbox does not answer: %v %+v", err, res)
	}
}

// observe uses the sibling during an attack, and returns how to end that and
// judge what it saw: every command is answered, and the server stays small. How
// long an answer takes depends on the machine and is only logged.
func (a *arena) observe(t *testing.T) func() {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	var latencies []time.Duration
	var peak int64
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			began := time.Now()
			// The end of the observation must not look like a failure.
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
			return // it said why
		}
		slices.Sort(latencies)
		p95 := latencies[(len(latencies)-1)*95/100]
		t.Logf("sibling: p95 %v of %d; server: %d MiB at most", p95.Round(time.Millisecond), len(latencies), peak>>20)
		if peak > mostMemory {
			t.Errorf("the server held %d MiB", peak>>20)
		}
	}
}

// memory is what the server holds of its own. Pages of its program are the
// system's, which takes them when it needs them.
func (a *arena) memory(t *testing.T) int64 {
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
	t.Error("the server's memory is not known")
	return 0
}

// settles waits until the server has no more open than it had, and a little.
func (a *arena) settles(t *testing.T, before int) {
	t.Helper()
	// What is kept on purpose: 16 idle connections to a sandbox, and 4 to its
	// engine; and the sibling has some of its own.
	const spare = 24
	hosttest.EventuallyNoError(t, func() error {
		if now := len(hosttest.Descriptors(t, a.PID())); now > before+spare {
			return fmt.Errorf("the server has %d descriptors open; before the attack it had %d", now, before)
		}
		return nil
	})
}
