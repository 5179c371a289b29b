// Package cycles_test creates and ends sandboxes by the hundred at a server, and counts what is
// left of them: in the server, which is this process, in the gateway, and on this machine.
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

// number is how many sandboxes a test creates: all in make test-full, and otherwise enough to
// detect a leak per sandbox.
func number(all int) int {
	if hosttest.Full() {
		return all
	}
	return all / 10
}

// policy gives a sandbox a network.
const policy = "policy: v1\nname: cycles\nnetwork: {unlisted: deny, hosts: [{host: api.cycles.test, rules: [{methods: [GET], do: allow}]}]}\n"

// server is a server in this process, with directories of its own. A sandbox with a network runs in
// it all the time, so that there is a gateway.
type server struct {
	state, tmp string
	sibling    string
	causeway   int // its process
}

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
	// When a server answers here, it listens on the socket too.
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
	s.sibling, s.causeway = sibling.ID(), servetest.CausewayPID(t, state)
	return s
}

// client is one that uses the server's socket, and whose connections end with it.
func (s server) client(t *testing.T) *crannog.Client {
	t.Helper()
	c, err := crannog.New(crannog.Socket(filepath.Join(s.state, "crannog.sock")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// turns runs the given number of turns, some concurrently, and removes ended sandboxes.
func (s server) turns(t *testing.T, n, atOnce int, turn func(context.Context, *crannog.Client) error) {
	t.Helper()
	c := s.client(t)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(atOnce)
	for range n {
		group.Go(func() error { return turn(ctx, c) })
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

// causewayFiles names the number of the gateway's open files.
const causewayFiles = "descriptors of the causeway"

// count counts everything that could be left.
func (s server) count(t *testing.T) map[string]int {
	t.Helper()
	n := hosttest.Host(t, s.state)
	maps.Copy(n, gvisortest.Residue(t, s.state))
	n[causewayFiles] = len(hosttest.Descriptors(t, s.causeway))
	for _, pattern := range []string{filepath.Join(s.tmp, "*"), gvisortest.Temporary} {
		found, _ := filepath.Glob(pattern) // Glob fails only for malformed patterns
		n["temporary files"] += len(found)
	}
	// It grows with each event, and has a limit of its own.
	delete(n, "files: record")
	return n
}

// calm counts when nothing changes any more.
func (s server) calm(t *testing.T) (n map[string]int) {
	t.Helper()
	for end := hosttest.Deadline(); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		was := n
		if n = s.count(t); maps.Equal(n, was) {
			return n
		}
	}
	t.Fatalf("it does not calm down: %v", n)
	return nil
}

// leavesNothing makes turns, and checks that no more is left after many than after a few.
func (s server) leavesNothing(t *testing.T, n, atOnce int, turn func(context.Context, *crannog.Client) error) {
	t.Helper()
	s.turns(t, 2*atOnce, atOnce, turn) // what is created once and kept is not a leak
	before := s.calm(t)
	s.seesOne(t, before)
	began := time.Now()
	s.turns(t, n, atOnce, turn)
	t.Logf("%d turns in %v", n, time.Since(began).Round(time.Millisecond))
	hosttest.EventuallyNoError(t, func() error {
		if left := hosttest.Grown(before, s.count(t)); len(left) > 0 {
			return fmt.Errorf("left after %d turns: %q; open: %q", n, left, hosttest.Descriptors(t, os.Getpid()))
		}
		return nil
	})
}

// seesOne is the control: one sandbox that is not ended is counted.
func (s server) seesOne(t *testing.T, before map[string]int) {
	t.Helper()
	c := s.client(t)
	sb, err := c.Create(t.Context(), crannog.Policy(policy))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(run(t.Context(), sb), c.Close()); err != nil {
		t.Error(err)
	}
	n := s.calm(t)
	for _, kind := range []string{"processes", "descriptors", "goroutines", "files: run", causewayFiles} {
		if n[kind] <= before[kind] {
			t.Errorf("control: with a sandbox there are %d %s, without %d", n[kind], kind, before[kind])
		}
	}
	// Empty groups of other tests come and go at the same time, so the number proves nothing here.
	if len(servetest.Groups(sb.ID())) == 0 {
		t.Error("control: the sandbox has no control group")
	}
	s.turns(t, 1, 1, func(ctx context.Context, c *crannog.Client) error { return end(ctx, c, sb.ID()) })
}

// run runs a program that checks whether the sandbox has a network.
func run(ctx context.Context, sb *crannog.Sandbox) error {
	out, err := sb.CommandContext(ctx, "grep", "-o", "eth0", "/proc/net/dev").CombinedOutput()
	if err != nil || string(out) != "eth0\n" {
		return fmt.Errorf("%s: %w: %q", sb.ID(), err, out)
	}
	return nil
}

func end(ctx context.Context, c *crannog.Client, id string) error {
	sb, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	return sb.Kill(ctx)
}

// P8: sandboxes that are created, used and removed leave nothing.
func TestCreated(t *testing.T) {
	s := start(t)
	s.leavesNothing(t, number(500), 4, func(ctx context.Context, c *crannog.Client) error {
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

// P8: neither do copies with networks of their own.
func TestForked(t *testing.T) {
	s := start(t)
	const together = 10
	s.leavesNothing(t, number(1000)/together, 1, func(ctx context.Context, c *crannog.Client) error {
		source, err := c.Get(ctx, s.sibling)
		if err != nil {
			return err
		}
		copies, err := source.Fork(ctx, api.CreateFork{Count: together})
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
