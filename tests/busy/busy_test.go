// Package busy_test makes sandboxes use every processor and checks that the server, other sandboxes
// and the busy ones still answer.
package busy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/engine/gvisor/gvisortest"
	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

const (
	// startLoops is a shell line with two processes that never wait.
	startLoops = "while :; do :; done & while :; do :; done"
	// rounds is the largest number of comparisons between idle and busy, and samples the number of
	// requests of each kind in a round.
	rounds, samples = 10, 15
)

// fixture is a server with sandboxes that use every processor on request.
type fixture struct {
	*servetest.Server
	t     *testing.T
	quiet *crannog.Sandbox
	busy  []*crannog.Sandbox
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := &fixture{Server: servetest.Start(t, program, t.TempDir()), t: t}
	client := c.Client(t)
	create := func(options ...crannog.CreateOption) *crannog.Sandbox {
		sb, err := client.Create(t.Context(), append(options, crannog.Timeout(time.Hour))...)
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	c.quiet = create(crannog.Allow("example.com")) // the gateway runs when a sandbox has a network
	for range 4 * runtime.NumCPU() {
		c.busy = append(c.busy, create())
	}
	return c
}

// startLoops starts the busy programs, and returns a function that stops them.
func (c *fixture) startLoops() (stop func()) {
	c.t.Helper()
	ctx, end := context.WithCancel(c.t.Context())
	var all []*crannog.Cmd
	for _, sb := range c.busy {
		cmd := sb.CommandContext(ctx, "sh", "-c", startLoops)
		if err := cmd.Start(); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, cmd)
	}
	return func() {
		c.t.Helper()
		end()
		for _, cmd := range all {
			if err := cmd.Wait(); !errors.Is(err, context.Canceled) {
				c.t.Errorf("a busy program ended by itself: %v", err)
			}
		}
	}
}

// median returns the median duration of a request.
func (c *fixture) median(ask func() error) time.Duration {
	c.t.Helper()
	var all []time.Duration
	for range samples {
		began := time.Now()
		if err := ask(); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// list requests the list of sandboxes.
func (c *fixture) list() error {
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.URL+"/v1/sandboxes", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", c.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("list: %s", resp.Status)
	}
	return err
}

// trueIn returns a request that runs true in a sandbox.
func trueIn(sb *crannog.Sandbox) func() error {
	return func() error { return sb.Command("true").Run() }
}

// P47: sandboxes that use every processor slow the server and others by a bounded factor.
func TestP47BusySandboxesSlowOthersLittle(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	c := newFixture(t)
	c.requireServerApart()
	requests := []struct {
		name      string
		maxFactor float64
		ask       func() error
	}{
		{"GET /v1/sandboxes", 5, c.list},
		{"exec true in an idle sandbox", 10, trueIn(c.quiet)},
		{"exec true in a busy sandbox", 10, trueIn(c.busy[0])},
	}
	// Other load may slow down either state by chance, so each request has to be fast enough in
	// only one round.
	tooSlow := map[string]bool{}
	for _, q := range requests {
		tooSlow[q.name] = true
	}
	for round := range rounds {
		idle := make([]time.Duration, len(requests))
		for i, q := range requests {
			idle[i] = c.median(q.ask)
		}
		stop := c.startLoops()
		if round == 0 {
			c.requireLowerWeights()
		}
		for i, q := range requests {
			busy := c.median(q.ask)
			factor := float64(busy) / float64(idle[i])
			t.Logf("%s: %s, among busy sandboxes %s: %.2f×", q.name, idle[i], busy, factor)
			if factor <= q.maxFactor {
				delete(tooSlow, q.name)
			}
		}
		stop()
		if len(tooSlow) == 0 {
			return
		}
	}
	t.Errorf("requests that exceeded their factor in each of %d rounds: %v", rounds, tooSlow)
}

// requireServerApart checks that the server and its egress gateway are in no sandbox's control
// group and have the test's nice value.
func (c *fixture) requireServerApart() {
	c.t.Helper()
	egressPID := 0
	for _, pid := range processes(c.t) {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if args := strings.Split(string(line), "\x00"); err == nil && len(args) > 1 && args[0] == gateway.Arg0 && strings.HasPrefix(args[1], c.State) {
			egressPID = pid
		}
	}
	if egressPID == 0 {
		c.t.Fatal("no process is the egress gateway")
	}
	own, err := niceValue(os.Getpid())
	if err != nil {
		c.t.Fatal(err)
	}
	for name, pid := range map[string]int{"server": c.PID(), "egress gateway": egressPID} {
		for _, g := range groupsOf(c.t, pid) {
			if strings.Contains(g, "/crannog/") {
				c.t.Errorf("the %s is in group %s", name, g)
			}
		}
		if nice, err := niceValue(pid); err != nil || nice != own {
			c.t.Errorf("the %s has nice value %d, want %d: %v", name, nice, own, err)
		}
	}
}

// requireLowerWeights waits until each busy sandbox has a lower weight than the quiet one. It
// checks that the sandbox's programs have higher nice values than its kernel.
func (c *fixture) requireLowerWeights() {
	c.t.Helper()
	behind := map[string]bool{}
	hosttest.Eventually(c.t, "each busy sandbox has a lower weight than the quiet one", func() bool {
		quiet := weight(c.t, c.quiet.ID())
		for _, sb := range c.busy {
			// A tenth is rounded: 102 of 1024 in cgroup v1, 10 of 100 in v2.
			if weight(c.t, sb.ID())*9 < quiet {
				behind[sb.ID()] = true
			}
		}
		return len(behind) == len(c.busy)
	})
	lowest, highest := 99, -99
	for _, pid := range gvisortest.Processes(c.t, c.State) {
		n, err := strconv.Atoi(pid)
		if err != nil {
			c.t.Fatal(err)
		}
		// Programs run on processes below the kernel's.
		family, err := census.Family("/proc", n, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, m := range family {
			if nice, err := niceValue(m.PID); err == nil {
				lowest, highest = min(lowest, nice), max(highest, nice)
			}
		}
	}
	if own, err := niceValue(os.Getpid()); err != nil || lowest != own || highest < min(own+10, 19) {
		c.t.Errorf("nice values of sandboxes from %d to %d, the test's own is %d: %v", lowest, highest, own, err)
	}
}
