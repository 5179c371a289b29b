package enginetest

import (
	"io"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// spareRules check sandboxes that use a prestarted kernel.
var spareRules = []rule{
	{"prestarted/are-used-and-dropped", func(t testing.TB, c *Config) {
		b, wantNothingLeft := c.counted(t)
		saved := save(t, b)
		for range 3 {
			warm(t, c, b.e, 2)
			other := c.copyOf(t, b.e, saved)
			other.want(t, "uname -n", other.id)
			other.client.CloseIdleConnections()
			if err := b.e.Remove(t.Context(), other.id); err != nil {
				t.Fatal(err)
			}
		}
		warm(t, c, b.e, 0)
		wantNothingLeft()
	}},
	{"prestarted/get-the-name-of-a-new-sandbox", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		b.want(t, "uname -n; cat /etc/hostname", "box\nbox")
		warm(t, c, e, 1)
		if err := saver(e).Replace(t.Context(), c.spec(b.id), ""); err != nil {
			t.Fatal(err)
		}
		attach(t, e, b.id).want(t, "uname -n; cat /etc/hostname", "box\nbox")
	}},
	{"prestarted/of-two-kinds", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		saved := save(t, b)
		other := c.spec("any")
		other.Limits.MemoryBytes = 300 << 20
		both := []engine.Prestarted{{Spec: other, Count: 1}, {Spec: c.spec("any"), Count: 1}}
		warmAll(t, b.e, both, 2)
		copied := c.copyOf(t, b.e, saved)
		copied.want(t, "uname -n", copied.id)
		hosttest.Eventually(t, "a kernel of this kind is prestarted again", func() bool { return counter(b.e).Prestarted() == 2 })
		// The kernel of the other kind has existed all the time: a new one could not be ready yet.
		b.e.(engine.Warmer).Warm(both[:1])
		if n := counter(b.e).Prestarted(); n != 1 {
			t.Errorf("%d prestarted kernels of the other kind are left", n)
		}
		warmAll(t, b.e, nil, 0)
	}},
	// P32 of docs/reference/promises.md
	{"prestarted/are-watched-when-used", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, v := c.startObserved(t, e)
		v.wantProgram(t, b, "before")
		warm(t, c, e, 1)
		spec := c.spec(b.id)
		spec.Events = v.f
		if err := saver(e).Replace(t.Context(), spec, ""); err != nil {
			t.Fatal(err)
		}
		v.wantBegan(t)
		v.wantProgram(t, attach(t, e, b.id), "spare")
		v.wantNoGaps(t)
	}},
	{"prestarted/do-not-reserve-an-id", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		saved := save(t, b)
		warm(t, c, e, 1)
		spec := c.spec(b.id)
		spec.Boot.Config = renewed(b.id, "box", guest.Copied)
		if err := saver(e).Restore(t.Context(), spec, saved); fault.KindOf(err) != fault.Exists {
			t.Errorf("restore with a used ID: got %v, want exists", err)
		}
		b.want(t, "echo well", "well")
	}},
	{"prestarted/have-their-own-links", func(t testing.TB, c *Config) {
		copiesHaveOwnLinks(t, c, func(c *Config, e engine.Engine, n int) { warm(t, c, e, n) })
	}},
}

// warm requests prestarted kernels and waits until they exist.
func warm(t testing.TB, c *Config, e engine.Engine, n int) {
	t.Helper()
	spec := c.spec("any")
	spec.Hostname = "" // ignored
	warmAll(t, e, []engine.Prestarted{{Spec: spec, Count: n}}, n)
}

// warmAll is warm for kernels of several kinds.
func warmAll(t testing.TB, e engine.Engine, wanted []engine.Prestarted, n int) {
	t.Helper()
	e.(engine.Warmer).Warm(wanted)
	// Prestarted kernels outlive their engine value unless it is closed.
	if closer, ok := e.(io.Closer); ok {
		t.Cleanup(func() {
			if err := closer.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	hosttest.Eventually(t, "kernels are prestarted", func() bool { return counter(e).Prestarted() == n })
}

// counter returns an engine that counts its prestarted kernels, as each Warmer does for tests.
func counter(e engine.Engine) interface{ Prestarted() int } { return e.(interface{ Prestarted() int }) }
