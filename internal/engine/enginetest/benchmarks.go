package enginetest

import (
	"context"
	"os"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// benchmark measures an operation that callers wait for. The function prepare returns the measured
// step, and a function to call after each step.
type benchmark struct {
	name    string
	prepare func(t testing.TB, c *Config) (step, after func())
}

var benchmarks = []benchmark{
	{"create-and-remove", func(t testing.TB, c *Config) (step, after func()) {
		e := c.Open(t, t.TempDir())
		return func() {
			spec := c.spec(newID())
			if err := e.Create(t.Context(), spec); err != nil {
				t.Fatalf("create: %v", err)
			}
			remove(t, e, spec.ID)
		}, func() {}
	}},
	{"exec", func(t testing.TB, c *Config) (step, after func()) {
		b := c.start(t, c.Open(t, t.TempDir()))
		return func() { b.want(t, "echo x", "x") }, func() {}
	}},
	{"snapshot", func(t testing.TB, c *Config) (step, after func()) {
		b := c.start(t, c.Open(t, t.TempDir()))
		parent, dir := t.TempDir(), ""
		return func() {
				var err error
				if dir, err = os.MkdirTemp(parent, ""); err != nil {
					t.Fatal(err)
				}
				if err := saver(b.e).Checkpoint(t.Context(), b.id, dir); err != nil {
					t.Fatalf("checkpoint: %v", err)
				}
			}, func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
	}},
	{"fork", func(t testing.TB, c *Config) (step, after func()) {
		b := c.start(t, c.Open(t, t.TempDir()))
		saved := save(t, b)
		var other *testSandbox
		return func() {
				other = c.copyOf(t, b.e, saved)
				other.want(t, "echo x", "x")
			}, func() {
				other.client.CloseIdleConnections()
				remove(t, b.e, other.id)
			}
	}},
}

// Benchmarks measures, as sub-benchmarks, how long the engine under test makes its callers wait:
// for creating and removing a sandbox, for a command, for saving a state, and for a copy and its
// first command.
func Benchmarks(b *testing.B, c Config) {
	for _, m := range benchmarks {
		b.Run(m.name, func(b *testing.B) {
			step, after := m.prepare(b, &c)
			step() // the first may create shared files
			after()
			for b.Loop() {
				step()
				b.StopTimer()
				after()
				b.StartTimer()
			}
		})
	}
}

// benchmarkRules runs each benchmark twice, because go test runs no benchmarks by default and would
// not notice one that no longer works.
var benchmarkRules = []rule{
	{"benchmarks/work", func(t testing.TB, c *Config) {
		for _, m := range benchmarks {
			t.Log(m.name)
			step, after := m.prepare(t, c)
			for range 2 {
				step()
				after()
			}
		}
	}},
}

// remove removes a sandbox, also after the end of the test's context.
func remove(t testing.TB, e engine.Engine, id string) {
	t.Helper()
	if err := e.Remove(context.WithoutCancel(t.Context()), id); err != nil {
		t.Fatalf("remove %s: %v", id, err)
	}
}
