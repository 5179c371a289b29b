package enginetest

import (
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var restartRules = []rule{
	{"restart/another-process-finds-the-sandbox", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		first := c.start(t, c.Open(t, dir))
		first.want(t, "echo kept > /tmp/f && cat /tmp/f", "kept")
		reopened := c.Open(t, dir)
		list, err := reopened.List(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != first.id || list[0].State != engine.Running || list[0].Created.IsZero() {
			t.Fatalf("list: %+v %v", list, err)
		}
		attach(t, reopened, first.id).want(t, "cat /tmp/f", "kept")
	}},
	{"restart/a-recreated-sandbox-is-found", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e, other := c.Open(t, dir), c.Open(t, dir)
		b := c.start(t, e)
		attach(t, other, b.id).want(t, "echo old > /tmp/f && cat /tmp/f", "old")
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		if err := e.Create(t.Context(), c.spec(b.id)); err != nil {
			t.Fatal(err)
		}
		// The other process notices that the first instance has ended, and then finds the new one.
		hosttest.Eventually(t, "the new sandbox answers", func() bool {
			r, err := attach(t, other, b.id).exec(t.Context(), "user", "/bin/sh", "-c", "test ! -e /tmp/f && echo new")
			return err == nil && r.stdout == "new\n"
		})
	}},
	{"restart/wait-works-after-it", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		first := c.start(t, c.Open(t, dir))
		reopened := c.Open(t, dir)
		exits := make(chan engine.Exit, 1)
		go func() {
			exit, err := waitFor(t.Context(), reopened, first.id)
			if err != nil {
				exit.Reason = engine.Reason(err.Error())
			}
			exits <- exit
		}()
		stillWaits(t, exits, 1)
		if err := reopened.Remove(t.Context(), first.id); err != nil {
			t.Fatal(err)
		}
		if exit := <-exits; exit.Reason != engine.ReasonKilled {
			t.Errorf("Wait returned %+v, want killed", exit)
		}
	}},
	{"restart/remove-works-after-it", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		first := c.start(t, c.Open(t, dir))
		reopened := c.Open(t, dir)
		if err := reopened.Remove(t.Context(), first.id); err != nil {
			t.Fatal(err)
		}
		if list, err := reopened.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("sandboxes left after the removal: %v %v", list, err)
		}
	}},
}
