// Package cost_test compares the kernel work of operations with budgets: page faults and context
// switches. They are counts and not times, so a busy or slow machine changes them little.
package cost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/perfcount"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// budget is what the cheapest of several rounds may cost. Programs that run beside a round, such as
// other tests, add to it and take nothing away.
type budget struct{ faults, switches int64 }

// budgets are 15 to 25 % (small ones more) above the highest of several medians that `bench/run.sh
// -only cost` printed on a busy machine with two processors. A change that makes an operation
// cheaper lowers its budget.
var budgets = map[string]budget{
	"crannog run -- true":            {7800, 6300},
	"create, cold":                   {5300, 4200},
	"exec true, first command":       {480, 1100},
	"exec true, second command":      {240, 700},
	"remove":                         {60, 250},
	"create cold, exec true, remove": {6400, 5700},
}

// rounds are measured after one that is not counted, which writes the embedded programs.
const rounds = 5

// carried are the embedded programs. Without them, the binary starts itself again, at a higher
// cost.
var carried = hosttest.Requirement{Name: "the programs that make build puts into the binary", Has: func() bool {
	for _, path := range []string{"../../internal/host/embedded/guestbin/bin/crannog-guest", "../../internal/host/embedded/runtimebin/bin/crannog-runtime"} {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return true
}}

func TestRun(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.PerfEvents, carried)
	c := costs{}
	state, empty := t.TempDir(), t.TempDir()
	for round := -1; round < rounds; round++ {
		counter := open(t)
		cmd := exec.CommandContext(t.Context(), program, "run", "--", "true")
		cmd.Dir, cmd.Env = empty, append(os.Environ(), "CRANNOG_STATE="+state)
		out, err := cmd.CombinedOutput()
		counts, readErr := counter.Read()
		if err := errors.Join(err, readErr, counter.Close()); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if round >= 0 {
			c.add("crannog run -- true", counts)
		}
	}
	c.check(t)
}

func TestServed(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.PerfEvents, carried)
	counter := open(t)
	defer counter.Close()
	server := servetest.Start(t, program, t.TempDir()) // without a pool
	client := server.Client(t)
	c := costs{}
	for round := -1; round < rounds; round++ {
		l := life{costs: c, counter: counter}
		if round < 0 {
			l.costs = costs{}
		}
		if err := l.live(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
	c.check(t)
}

func open(t *testing.T) *perfcount.Counter {
	t.Helper()
	counter, err := perfcount.Open()
	if err != nil {
		t.Fatal(err)
	}
	return counter
}

// life measures one sandbox of a server.
type life struct {
	costs   costs
	counter *perfcount.Counter
}

func (l life) live(ctx context.Context, client *crannog.Client) error {
	begin, err := l.counter.Read()
	if err != nil {
		return err
	}
	var sb *crannog.Sandbox
	if err := l.step("create, cold", func() (err error) {
		sb, err = client.Create(ctx, crannog.Timeout(time.Hour))
		return err
	}); err != nil {
		return err
	}
	run := func() error { return sb.CommandContext(ctx, "true").Run() }
	err = errors.Join(l.step("exec true, first command", run), l.step("exec true, second command", run))
	if err := errors.Join(err, l.step("remove", func() error { return sb.Kill(ctx) })); err != nil {
		return err
	}
	end, err := l.counter.Read()
	l.costs.add("create cold, exec true, remove", end.Sub(begin))
	return err
}

func (l life) step(name string, do func() error) error {
	before, err := l.counter.Read()
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	after, err := l.counter.Read()
	l.costs.add(name, after.Sub(before))
	return err
}

// costs are the measured costs by operation.
type costs map[string][]perfcount.Counts

func (c costs) add(name string, counts perfcount.Counts) { c[name] = append(c[name], counts) }

func (c costs) check(t *testing.T) {
	t.Helper()
	for name, all := range c {
		faults := lowest(all, func(c perfcount.Counts) int64 { return c.Faults })
		switches := lowest(all, func(c perfcount.Counts) int64 { return c.Switches })
		t.Logf("%s: %d page faults, %d context switches", name, faults, switches)
		most, known := budgets[name]
		if !known {
			t.Errorf("%s has no budget", name)
		}
		if faults <= 0 || switches <= 0 {
			t.Errorf("%s: %d page faults and %d context switches cannot be", name, faults, switches)
		}
		if faults > most.faults {
			t.Errorf("%s: %d page faults, budget %d", name, faults, most.faults)
		}
		if switches > most.switches {
			t.Errorf("%s: %d context switches, budget %d", name, switches, most.switches)
		}
	}
	if len(c) == 0 {
		t.Error("nothing was measured")
	}
}

func lowest(all []perfcount.Counts, of func(perfcount.Counts) int64) int64 {
	low := of(all[0])
	for _, c := range all {
		low = min(low, of(c))
	}
	return low
}
