package enginetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var freezeRules = []rule{
	{"freeze/programs-stop-and-continue", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		startCounter(t, b)
		before := number(t, b.sh(t, ask).stdout)
		freezer(b).freeze(t, b)
		answered, ctx := make(chan result, 1), hosttest.Context(t)
		go func() {
			r, err := b.exec(ctx, "user", "/bin/sh", "-c", ask)
			if err != nil {
				r.stderr += err.Error()
			}
			answered <- r
		}()
		// A sandbox that is not frozen answers much sooner than this timeout, on any machine.
		select {
		case r := <-answered:
			t.Errorf("a frozen sandbox answers: %+v", r)
			answered <- r
		case <-time.After(hosttest.Patience(time.Second)):
		}
		freezer(b).thaw(t, b)
		if r := <-answered; r.code != 0 || strings.TrimSpace(r.stdout) != fmt.Sprint(before+1) {
			t.Errorf("the answer after the thaw: %+v, want %d", r, before+1)
		}
		b.want(t, "echo alive", "alive")
	}},
	{"freeze/a-frozen-sandbox-is-listed-and-removed", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		freezer(b).freeze(t, b)
		if list, err := e.List(t.Context()); err != nil || len(list) != 1 || list[0].State != engine.Running {
			t.Errorf("listed as %+v, %v", list, err)
		}
		exits := make(chan engine.Exit, 1)
		go func() {
			exit, err := waitFor(t.Context(), e, b.id)
			if err != nil {
				exit.Reason = engine.Reason(err.Error())
			}
			exits <- exit
		}()
		stillWaits(t, exits, 1)
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		if exit := <-exits; exit.Reason != engine.ReasonKilled {
			t.Errorf("ended as %+v", exit)
		}
		if err := freezer(b).Thaw(t.Context(), b.id); fault.KindOf(err) != fault.NotFound {
			t.Errorf("thaw after remove: %v", err)
		}
	}},
	{"freeze/another-process-thaws-it", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		b := c.start(t, c.Open(t, dir))
		freezer(b).freeze(t, b)
		later := attach(t, c.Open(t, dir), b.id)
		freezer(later).thaw(t, later)
		later.want(t, "echo alive", "alive")
		b.want(t, "echo here too", "here too")
	}},
	{"freeze/is-idempotent", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		freezer(b).thaw(t, b) // the sandbox is not frozen
		b.want(t, "echo runs", "runs")
		freezer(b).freeze(t, b)
		freezer(b).freeze(t, b)
		freezer(b).thaw(t, b)
		b.want(t, "echo runs again", "runs again")
		freezer(b).thaw(t, b)
		b.want(t, "echo still", "still")
	}},
	{"freeze/unknown-is-not-found", func(t testing.TB, c *Config) {
		f := c.Open(t, t.TempDir()).(engine.Freezer)
		if err := f.Freeze(t.Context(), "missing"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("freeze: %v", err)
		}
		if err := f.Thaw(t.Context(), "missing"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("thaw: %v", err)
		}
	}},
	{"freeze/a-frozen-sandbox-is-not-saved", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		saved := save(t, b)
		freezer(b).freeze(t, b)
		if err := saver(b.e).Checkpoint(t.Context(), b.id, t.TempDir()); fault.CodeOf(err) != engine.CodeFrozen {
			t.Errorf("checkpoint: %v", err)
		}
		spec := c.spec(b.id)
		spec.Boot.Config = renewed(b.id, "box", guest.RolledBack)
		if err := saver(b.e).Replace(t.Context(), spec, saved); fault.CodeOf(err) != engine.CodeFrozen {
			t.Errorf("replace: %v", err)
		}
		freezer(b).thaw(t, b)
		c.copyOf(t, b.e, save(t, b)).want(t, "echo copied", "copied")
	}},
	{"freeze/a-frozen-sandbox-is-not-archived", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		freezer(b).freeze(t, b)
		archiver, f := archive(t, b.e)
		if err := archiver.Archive(t.Context(), b.id, f); fault.CodeOf(err) != engine.CodeFrozen {
			t.Errorf("archive: %v", err)
		}
		freezer(b).thaw(t, b)
		if err := archiver.Archive(t.Context(), b.id, f); err != nil {
			t.Errorf("archive after the thaw: %v", err)
		}
	}},
}

// testFreezer is a Freezer that fails a test on errors.
type testFreezer struct{ engine.Freezer }

func freezer(b *testSandbox) testFreezer { return testFreezer{b.e.(engine.Freezer)} }

func (f testFreezer) freeze(t testing.TB, b *testSandbox) {
	t.Helper()
	if err := f.Freeze(t.Context(), b.id); err != nil {
		t.Fatalf("freeze: %v", err)
	}
}

func (f testFreezer) thaw(t testing.TB, b *testSandbox) {
	t.Helper()
	if err := f.Thaw(t.Context(), b.id); err != nil {
		t.Fatalf("thaw: %v", err)
	}
}
