// Package cycles_test creates and ends hundreds of sandboxes at a server, and counts what they
// leave: in the server, which is this process, in the gateway, and on this machine.
package cycles_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine/gvisor/gvisortest"
	"github.com/crannog/crannog/internal/server/standard"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

func TestMain(m *testing.M) {
	crannog.Main()
	os.Exit(m.Run())
}

// cycleCount returns the number of sandboxes that a test creates: all of them in make test-full,
// and otherwise enough to detect a leak per sandbox.
func cycleCount(all int) int {
	if hosttest.Full() {
		return all
	}
	return all / 10
}

// policy gives a sandbox a network.
const policy = "policy: v1\nname: cycles\nnetwork: {unlisted: deny, hosts: [{host: api.cycles.test, rules: [{methods: [GET], do: allow}]}]}\n"

// server is a server in this process with its own directories. Its sibling is a sandbox with a
// network that runs all the time, so that there is a gateway.
type server struct {
	state, tmp string
	sibling    string
	gatewayPID int
}

// start starts a server until the test ends.
func start(t *testing.T) server {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	state, err := os.MkdirTemp("", "cy") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	s := server{state: state, tmp: t.TempDir()}
	t.Setenv("TMPDIR", s.tmp)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := standard.Open(t.Context(), standard.Options{State: state, Log: log, Server: true, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, d.Close(context.Background())); err != nil {
			t.Error(err)
		}
		servetest.NothingLeft(t, state)
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	// A server that answers here also listens on its socket.
	answer, err := http.Get("http://" + l.Addr().String() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	c := s.client(t)
	sibling, err := c.Create(t.Context(), crannog.Policy(policy), crannog.Timeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c := s.client(t)
		if err := errors.Join(end(context.Background(), c, sibling.ID()), c.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(run(t.Context(), sibling), c.Close()); err != nil {
		t.Fatal(err)
	}
	s.sibling, s.gatewayPID = sibling.ID(), servetest.CausewayPID(t, state)
	return s
}

// client returns a client that uses the server's socket. Its connections end with Close.
func (s server) client(t *testing.T) *crannog.Client {
	t.Helper()
	c, err := crannog.New(crannog.Socket(filepath.Join(s.state, "crannog.sock")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// runCycles runs a number of cycles, some concurrently, and removes the rows of ended sandboxes.
func (s server) runCycles(t *testing.T, n, parallel int, cycle func(context.Context, *crannog.Client) error) {
	t.Helper()
	c := s.client(t)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(parallel)
	for range n {
		group.Go(func() error { return cycle(ctx, c) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// gatewayFiles names the number of the gateway's open files.
const gatewayFiles = "descriptors of the gateway"

// count counts everything that a sandbox could leave.
func (s server) count(t *testing.T) map[string]int {
	t.Helper()
	n := hosttest.Host(t, s.state)
	maps.Copy(n, gvisortest.Residue(t, s.state))
	n[gatewayFiles] = len(hosttest.Descriptors(t, s.gatewayPID))
	for _, pattern := range []string{filepath.Join(s.tmp, "*"), gvisortest.Temporary} {
		found, _ := filepath.Glob(pattern) // Glob fails only for malformed patterns
		n["temporary files"] += len(found)
	}
	// The audit log grows with each event, and has its own limit.
	delete(n, "files: record")
	return n
}

// stableCount counts repeatedly until nothing changes any more.
func (s server) stableCount(t *testing.T) (n map[string]int) {
	t.Helper()
	for end := hosttest.Deadline(); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		last := n
		if n = s.count(t); maps.Equal(n, last) {
			return n
		}
	}
	t.Fatalf("the counts keep changing: %v", n)
	return nil
}

// requireNothingLeft runs cycles, and checks that many of them leave no more than a few.
func (s server) requireNothingLeft(t *testing.T, n, parallel int, cycle func(context.Context, *crannog.Client) error) {
	t.Helper()
	s.runCycles(t, 2*parallel, parallel, cycle) // what the first cycles create for all is not a leak
	before := s.stableCount(t)
	s.requireSandboxCounted(t, before)
	began := time.Now()
	s.runCycles(t, n, parallel, cycle)
	t.Logf("%d cycles in %v", n, time.Since(began).Round(time.Millisecond))
	hosttest.EventuallyNoError(t, func() error {
		if left := hosttest.Grown(before, s.count(t)); len(left) > 0 {
			return fmt.Errorf("left after %d cycles: %q; open files: %q", n, left, hosttest.Descriptors(t, os.Getpid()))
		}
		return nil
	})
}

// requireSandboxCounted is the control: the counts include a sandbox that has not ended.
func (s server) requireSandboxCounted(t *testing.T, before map[string]int) {
	t.Helper()
	c := s.client(t)
	sb, err := c.Create(t.Context(), crannog.Policy(policy))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(run(t.Context(), sb), c.Close()); err != nil {
		t.Error(err)
	}
	n := s.stableCount(t)
	for _, kind := range []string{"processes", "descriptors", "goroutines", "files: run", gatewayFiles} {
		if n[kind] <= before[kind] {
			t.Errorf("control: got %d %s with a sandbox, and %d without", n[kind], kind, before[kind])
		}
	}
	// Control groups of other tests come and go at the same time, so their number proves nothing
	// here.
	if len(servetest.Groups(sb.ID())) == 0 {
		t.Error("control: the sandbox has no control group")
	}
	s.runCycles(t, 1, 1, func(ctx context.Context, c *crannog.Client) error { return end(ctx, c, sb.ID()) })
}

// run runs a program that checks whether the sandbox has a network.
func run(ctx context.Context, sb *crannog.Sandbox) error {
	out, err := sb.CommandContext(ctx, "grep", "-o", "eth0", "/proc/net/dev").CombinedOutput()
	if err != nil || string(out) != "eth0\n" {
		return fmt.Errorf("%s: %w: %q", sb.ID(), err, out)
	}
	return nil
}

// end removes a sandbox.
func end(ctx context.Context, c *crannog.Client, id string) error {
	sb, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	return sb.Kill(ctx)
}

// P8: sandboxes that are created, used and removed leave nothing.
func TestSandboxesLeaveNothing(t *testing.T) {
	s := start(t)
	s.requireNothingLeft(t, cycleCount(500), 4, func(ctx context.Context, c *crannog.Client) error {
		sb, err := c.Create(ctx)
		if err != nil {
			return err
		}
		out, err := sb.CommandContext(ctx, "echo", "x").CombinedOutput()
		if err != nil || string(out) != "x\n" {
			return fmt.Errorf("%w: %q", err, out)
		}
		return sb.Kill(ctx)
	})
}

// P8: forks with networks of their own leave nothing.
func TestForksLeaveNothing(t *testing.T) {
	s := start(t)
	const forksPerCycle = 10
	s.requireNothingLeft(t, cycleCount(1000)/forksPerCycle, 1, func(ctx context.Context, c *crannog.Client) error {
		source, err := c.Get(ctx, s.sibling)
		if err != nil {
			return err
		}
		copies, err := source.Fork(ctx, api.CreateFork{Count: forksPerCycle})
		if err != nil {
			return err
		}
		var group errgroup.Group
		for i, sb := range copies {
			group.Go(func() error {
				if i == 0 {
					if err := run(ctx, sb); err != nil {
						return err
					}
				}
				return sb.Kill(ctx)
			})
		}
		return group.Wait()
	})
}
