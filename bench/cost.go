package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/perfcount"
)

// costFigures counts the kernel's work for each operation: page faults, context switches, system
// calls and processor time. These hardly depend on the machine, unlike milliseconds. The counts of
// a server include its whole process tree, from the request to the answer.
func costFigures(ctx context.Context, b *bench) (err error) {
	tally := newTally()
	commands, err := b.costCommands()
	if err != nil {
		return err
	}
	for round := -1; round < b.n; round++ {
		for _, c := range commands {
			if err := tally.command(ctx, round >= 0, c); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	for _, pool := range []string{"off", ""} {
		if err := b.costServed(ctx, tally, pool); err != nil {
			return err
		}
	}
	tally.report(b)
	return nil
}

const (
	costRun    = "crannog run -- true"
	costCold   = "create, cold"
	costPool   = "create, from the pool"
	costExec   = "exec true, first command"
	costAgain  = "exec true, second command"
	costPause  = "pause"
	costResume = "resume"
	costRemove = "remove"
	costLife   = "create cold, exec true, remove"
)

// costCommand is a program with its directory and environment.
type costCommand struct {
	name string
	argv []string
	dir  string
	env  []string
}

// costCommands returns the programs that this host can run.
func (b *bench) costCommands() ([]costCommand, error) {
	empty, stock := filepath.Join(b.dir, "cost-empty"), filepath.Join(b.dir, "stock")
	for _, dir := range []string{empty, stock} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	binary, err := filepath.Abs(b.crannog)
	if err != nil {
		return nil, err
	}
	all := []costCommand{{name: nameBare, argv: []string{"/bin/true"}}}
	if found("bwrap") {
		all = append(all, costCommand{name: nameBwrap, argv: bubblewrap("/bin/true")})
	}
	if found(b.runsc) {
		all = append(all, costCommand{name: nameStock, argv: b.stockDo("/bin/true")})
	}
	return append(all, costCommand{
		name: costRun, argv: []string{binary, "run", "--", "true"}, dir: empty,
		env: append(os.Environ(), "CRANNOG_STATE="+filepath.Join(b.dir, "cost-run")),
	}), nil
}

// command counts the work of a program, from its start to the end of everything that it started.
func (t *tally) command(ctx context.Context, counted bool, c costCommand) error {
	counter, err := perfcount.Open()
	if err != nil {
		return err
	}
	defer counter.Close()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.env
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	took := time.Since(began)
	counts, err := counter.Read()
	if err == nil && counted {
		t.add(c.name, took, counts)
	}
	return err
}

// costServed counts the operations of a server, with or without a pool.
func (b *bench) costServed(ctx context.Context, t *tally, pool string) (err error) {
	counter, err := perfcount.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, counter.Close()) }()
	args, create := []string{"--max-live", "100", "--verbose"}, costPool // rest and awaitMoreWarm read the server's log
	if pool != "" {
		args, create = append(args, "--pool", pool), costCold
	}
	srv, err := b.serve(ctx, b.crannog, "cost-serve"+pool, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	if pool == "" {
		if err := srv.awaitMoreWarm(ctx, 0); err != nil {
			return err
		}
	}
	for round := -1; round < b.n; round++ {
		l := costLifetime{t: t, srv: srv, counter: counter, counted: round >= 0}
		if err := l.live(ctx, create); err != nil {
			return err
		}
	}
	return nil
}

// costLifetime counts the operations of one sandbox.
type costLifetime struct {
	t       *tally
	srv     *server
	counter *perfcount.Counter
	counted bool
}

// live creates, uses and removes a sandbox.
func (l *costLifetime) live(ctx context.Context, create string) error {
	var sb *crannog.Sandbox
	life := l.begin()
	if err := l.step(create, func() (err error) {
		sb, err = l.srv.client.Create(ctx, crannog.Timeout(5*time.Minute))
		return err
	}); err != nil {
		return err
	}
	run := func() error { _, err := execTimed(ctx, sb, "true"); return err }
	remove := func() error { return sb.Kill(ctx) }
	if create == costPool {
		return errors.Join(remove(), l.srv.rest(ctx))
	}
	if err := l.step(costExec, run); err != nil {
		return errors.Join(err, remove())
	}
	if err := l.step(costRemove, remove); err != nil {
		return err
	}
	if err := l.end(costLife, life); err != nil {
		return err
	}
	if err := l.srv.rest(ctx); err != nil {
		return err
	}
	sb, err := l.srv.client.Create(ctx, crannog.Timeout(5*time.Minute))
	if err != nil {
		return err
	}
	if err := errors.Join(run(), l.step(costAgain, run), l.srv.rest(ctx)); err != nil {
		return errors.Join(err, remove())
	}
	err = errors.Join(l.step(costPause, func() error { return sb.Pause(ctx) }), l.srv.rest(ctx))
	if err == nil {
		err = l.step(costResume, func() error { return sb.Resume(ctx, 5*time.Minute) })
	}
	return errors.Join(err, remove(), l.srv.rest(ctx))
}

// reading is the state of the counters at a point in time.
type reading struct {
	at     time.Time
	counts perfcount.Counts
	err    error
}

// begin reads the counters.
func (l *costLifetime) begin() reading {
	counts, err := l.counter.Read()
	return reading{time.Now(), counts, err}
}

// step counts one operation.
func (l *costLifetime) step(name string, do func() error) error {
	before := l.begin()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return l.end(name, before)
}

// end adds the work since an earlier reading.
func (l *costLifetime) end(name string, before reading) error {
	took := time.Since(before.at)
	after, err := l.counter.Read()
	if err := errors.Join(before.err, err); err != nil {
		return err
	}
	if l.counted {
		l.t.add(name, took, after.Sub(before.counts))
	}
	return nil
}
