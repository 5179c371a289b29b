package sandbox_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/demand"
)

// warming is the fake with an ear for what to have ready.
type warming struct {
	*fake.Engine

	mu    sync.Mutex
	spec  engine.Spec
	count int
}

func (w *warming) Warm(spec engine.Spec, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spec, w.count = spec, n
}

func (w *warming) kept() (engine.Spec, int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spec, w.count
}

// newWarmRig is a pool whose engine notes what it is to have ready.
func newWarmRig(t *testing.T) (*poolRig, *warming) {
	t.Helper()
	var w *warming
	p := newPoolRig(t, func(d *sandbox.Deps) {
		w = &warming{Engine: d.Engine.(*fake.Engine)}
		d.Engine = w
	})
	return p, w
}

// Kernels for what goes on from a saved state are kept ready while such states
// are in use, and not under pressure or at the end.
func TestSparesFollowRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newWarmRig(t)
		p.start()
		sb := p.create(alice, func(c *sandbox.CreateRequest) { c.Limits.MemoryBytes = 256 << 20 })
		time.Sleep(time.Second)
		if _, n := w.kept(); n != 0 {
			t.Errorf("%d before anything was saved", n)
		}
		if _, err := p.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		if spec, n := w.kept(); n != 1 || spec.Limits.MemoryBytes != 256<<20 || spec.ID != "" || spec.Root.Dir == "" {
			t.Errorf("%d of %+v after a pause", n, spec)
		}
		if _, _, err := p.Resume(t.Context(), alice, sb.ID, time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Fork(t.Context(), alice, sb.ID, sandbox.ForkRequest{Count: 20, Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if _, n := w.kept(); n != 4 {
			t.Errorf("%d after twenty copies", n)
		}
		p.setMemory(demand.Memory{Total: 40 << 30, Available: 20 << 30, Stalled: 50})
		time.Sleep(time.Minute)
		if _, n := w.kept(); n != 0 {
			t.Errorf("%d under pressure", n)
		}
		p.setMemory(demand.Memory{Total: 40 << 30, Available: 20 << 30})
		time.Sleep(90 * time.Second)
		if _, n := w.kept(); n == 0 {
			t.Error("none when it has passed")
		}
		time.Sleep(10 * time.Minute)
		if _, n := w.kept(); n != 0 {
			t.Errorf("%d long after", n)
		}
		if _, err := p.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		if _, n := w.kept(); n != 1 {
			t.Errorf("%d after another pause", n)
		}
		p.close()
		if _, n := w.kept(); n != 0 {
			t.Errorf("%d at the end", n)
		}
	})
}

// What is kept ready counts towards the memory that may wait.
func TestSparesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newWarmRig(t)
		p.options.Bytes = 50 << 20
		p.start()
		sb := p.create(alice)
		if _, err := p.Fork(t.Context(), alice, sb.ID, sandbox.ForkRequest{Count: 20, Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if _, n := w.kept(); n != 2 {
			t.Errorf("%d kernels in 50 MiB", n)
		}
		if status, _ := p.Pool(); status.Used < 40<<20 || status.Used > status.Budget {
			t.Errorf("%d bytes are used of %d", status.Used, status.Budget)
		}
	})
}
