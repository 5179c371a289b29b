package enginetest

import (
	"fmt"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var leakRules = []rule{
	// P8 of docs/reference/promises.md
	{"leaks/cycles-leave-nothing", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		// The first sandbox may create files that all later ones share.
		cycle(t, c, e)
		before := c.count(t, dir)
		for range c.Cycles {
			cycle(t, c, e)
		}
		hosttest.EventuallyNoError(t, func() error {
			if left := hosttest.Grown(before, c.count(t, dir)); len(left) > 0 {
				return fmt.Errorf("after %d sandboxes: %v", c.Cycles, left)
			}
			return nil
		})
	}},
	{"leaks/the-engine-counts-a-sandbox", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		before := c.Residue(t, dir)
		processes := before["processes"]
		cycle(t, c, e)
		// Processes of the removed sandbox that have not ended yet would be counted in before, and
		// hide those of the next sandbox.
		hosttest.Eventually(t, "the processes of the removed sandbox have ended", func() bool {
			before = c.Residue(t, dir)
			return before["processes"] <= processes
		})
		c.start(t, e)
		if len(hosttest.Grown(before, c.Residue(t, dir))) == 0 {
			t.Errorf("the engine counts nothing for a running sandbox: %v", before)
		}
	}},
	{"leaks/the-counts-include-a-sandbox", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		cycle(t, c, e)
		before := c.count(t, dir)
		c.start(t, e)
		if left := hosttest.Grown(before, c.count(t, dir)); len(left) == 0 {
			t.Error("the leak rule's counts do not include a running sandbox")
		}
	}},
}

// cycle creates a sandbox, uses it and removes it.
func cycle(t testing.TB, c *Config, e engine.Engine) {
	t.Helper()
	b := c.start(t, e)
	b.want(t, "echo x", "x")
	b.client.CloseIdleConnections()
	if err := e.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
}

// count counts the host's resources for an engine's state directory and the engine's own resources
// for it.
func (c *Config) count(t testing.TB, dir string) map[string]int {
	t.Helper()
	n := hosttest.Host(t, dir)
	for kind, count := range c.Residue(t, dir) {
		n["engine: "+kind] = count
	}
	return n
}
