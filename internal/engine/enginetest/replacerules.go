package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// replacedByOtherProcess checks that a process that waits for a sandbox does not return when
// another process replaces the sandbox's instance.
func replacedByOtherProcess(t testing.TB, c *Config) {
	dir := t.TempDir()
	e, other := c.Open(t, dir), c.Open(t, dir)
	b := c.start(t, e)
	b.sh(t, "echo before > f")
	saved := save(t, b)
	b.sh(t, "echo after > f")
	exits := make(chan engine.Exit, 1)
	go func() {
		exit, err := waitFor(t.Context(), other, b.id)
		if err != nil {
			exit.Reason = engine.Reason(err.Error())
		}
		exits <- exit
	}()
	stillWaits(t, exits, 1)
	spec := c.spec(b.id)
	spec.Boot.Config = renewed(b.id, "box", guest.RolledBack)
	if err := saver(e).Replace(t.Context(), spec, saved); err != nil {
		t.Fatal(err)
	}
	// The other process notices the end of the replaced instance a moment later.
	hosttest.Eventually(t, "the sandbox answers the other process", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(10*time.Second))
		defer cancel()
		r, err := attach(t, other, b.id).exec(ctx, "user", "/bin/cat", "f")
		return err == nil && r.stdout == "before\n"
	})
	stillWaits(t, exits, 1)
	later := c.Open(t, dir)
	list, err := later.List(t.Context())
	if err != nil || len(list) != 1 || list[0].State != engine.Running {
		t.Errorf("a later process lists %+v, %v", list, err)
	}
	attach(t, later, b.id).want(t, "cat f", "before")
	if err := later.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	select {
	case <-exits:
	case <-hosttest.Late():
		t.Error("Wait does not return after the sandbox is removed")
	}
}
