package enginetest

import (
	"io"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// spareRules are about sandboxes that take over an existing kernel.
var spareRules = []rule{
	{"spares/are-used-and-dropped", func(t testing.TB, c *Config) {
		b, gone := c.counted(t)
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
		gone()
	}},
	{"spares/one-takes-the-name-of-a-new-box", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		b.want(t, "uname -n; cat /etc/hostname", "box\nbox")
		warm(t, c, e, 1)
		if err := saver(e).Replace(t.Context(), c.spec(b.id), ""); err != nil {
			t.Fatal(err)
		}
		attach(t, e, b.id).want(t, "uname -n; cat /etc/hostname", "box\nbox")
	}},
	{"spares/of-two-kinds", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		saved := save(t, b)
		other := c.spec("any")
		other.Limits.MemoryBytes = 300 << 20
		both := []engine.Prestarted{{Spec: other, Count: 1}, {Spec: c.spec("any"), Count: 1}}
		warmAll(t, b.e, both, 2)
		copied := c.copyOf(t, b.e, saved)
		copied.want(t, "uname -n", copied.id)
		hosttest.Eventually(t, "this kind's is made again", func() bool { return counter(b.e).Spares() == 2 })
		// The kernel of the other kind existed all the time: none is made this fast.
		b.e.(engine.Warmer).Warm(both[:1])
		if n := counter(b.e).Spares(); n != 1 {
			t.Errorf("%d spare kernels are left of the other kind", n)
		}
		warmAll(t, b.e, nil, 0)
	}},
	// P32
	{"spares/one-is-watched-when-it-is-used", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, v := c.watched(t, e)
		v.wantProgram(t, b, "before")
		warm(t, c, e, 1)
		spec := c.spec(b.id)
		spec.Events = v.f
		if err := saver(e).Replace(t.Context(), spec, ""); err != nil {
			t.Fatal(err)
		}
		v.first(t)
		v.wantProgram(t, attach(t, e, b.id), "spare")
		v.numbered(t)
	}},
	{"spares/one-cannot-take-an-id", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		saved := save(t, b)
		warm(t, c, e, 1)
		spec := c.spec(b.id)
		spec.Boot.Config = renewed(b.id, "box", guest.Copied)
		if err := saver(e).Restore(t.Context(), spec, saved); fault.KindOf(err) != fault.Exists {
			t.Errorf("got %v", err)
		}
		b.want(t, "echo well", "well")
	}},
	{"spares/links-are-their-own", func(t testing.TB, c *Config) {
		linksAreTheirOwn(t, c, func(c *Config, e engine.Engine, n int) { warm(t, c, e, n) })
	}},
}

// warm asks for spare kernels and waits until they exist.
func warm(t testing.TB, c *Config, e engine.Engine, n int) {
	t.Helper()
	like := c.spec("any")
	like.Hostname = "" // it does not matter
	warmAll(t, e, []engine.Prestarted{{Spec: like, Count: n}}, n)
}

func warmAll(t testing.TB, e engine.Engine, wanted []engine.Prestarted, n int) {
	t.Helper()
	e.(engine.Warmer).Warm(wanted)
	// They outlive the engine's user unless it is closed.
	if closer, ok := e.(io.Closer); ok {
		t.Cleanup(func() {
			if err := closer.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	hosttest.Eventually(t, "spare kernels are made", func() bool { return counter(e).Spares() == n })
}

// counter is an engine that counts its spare kernels, as each Warmer does for tests.
func counter(e engine.Engine) interface{ Spares() int } { return e.(interface{ Spares() int }) }
