package lifecycle_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/demand"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// warmerEngine is the fake engine with a record of the kernels that it should keep ready.
type warmerEngine struct {
	*fake.Engine

	mu     sync.Mutex
	wanted []engine.Prestarted
}

func (w *warmerEngine) Pace(func() (func(), bool)) {}

func (w *warmerEngine) Warm(wanted []engine.Prestarted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = wanted
}

func (w *warmerEngine) all() []engine.Prestarted {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wanted
}

// latest returns the kind of kernel that was used last, and how many of that kind are wanted.
func (w *warmerEngine) latest() (engine.Spec, int) {
	if all := w.all(); len(all) > 0 {
		return all[0].Spec, all[0].Count
	}
	return engine.Spec{}, 0
}

// newWarmRig returns a pool whose engine records the kernels that it should keep ready.
func newWarmRig(t *testing.T) (*poolRig, *warmerEngine) {
	t.Helper()
	var w *warmerEngine
	p := newPoolRig(t, func(d *lifecycle.Deps) {
		w = &warmerEngine{Engine: d.Engines.Default().(*fake.Engine)}
		d.Engines = fake.Registry(w)
	})
	return p, w
}

// Pre-started kernels for restored sandboxes are kept while saved states are in use,
// and not under memory pressure or at the end of the process.
func TestPrestartedKernelsFollowRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newWarmRig(t)
		p.start()
		sb := p.create(alice, func(c *sandbox.CreateRequest) { c.Limits.MemoryBytes = 256 << 20 })
		time.Sleep(time.Second)
		if _, n := w.latest(); n != 0 {
			t.Errorf("%d kernels before anything was saved", n)
		}
		if _, err := p.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		if spec, n := w.latest(); n != 1 || spec.Limits.MemoryBytes != 256<<20 || spec.ID != "" || spec.Image.View().Dir == "" {
			t.Errorf("%d kernels of %+v after a pause", n, spec)
		}
		if _, _, err := p.Resume(t.Context(), alice, sb.ID, time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Fork(t.Context(), alice, sb.ID, sandbox.ForkRequest{Count: 20, Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if _, n := w.latest(); n != 4 {
			t.Errorf("%d kernels after twenty copies", n)
		}
		p.setMemory(demand.Memory{Total: 40 << 30, Available: 20 << 30, Stalled: 50})
		time.Sleep(time.Minute)
		if _, n := w.latest(); n != 0 {
			t.Errorf("%d kernels under pressure", n)
		}
		p.setMemory(demand.Memory{Total: 40 << 30, Available: 20 << 30})
		time.Sleep(90 * time.Second)
		if _, n := w.latest(); n == 0 {
			t.Error("no kernels after the pressure has passed")
		}
		time.Sleep(10 * time.Minute)
		if _, n := w.latest(); n != 0 {
			t.Errorf("%d kernels long after the last restore", n)
		}
		if _, err := p.Pause(t.Context(), alice, sb.ID, false); err != nil {
			t.Fatal(err)
		}
		if _, n := w.latest(); n != 1 {
			t.Errorf("%d kernels after another pause", n)
		}
		p.close()
		if _, n := w.latest(); n != 0 {
			t.Errorf("%d kernels after Close", n)
		}
	})
}

// Sandboxes of two kinds that are resumed by turns do not take the kernels from each other.
func TestPrestartedKernelsOfSeveralKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newWarmRig(t)
		p.start()
		var ids []string
		for _, mb := range []int64{256, 512, 300, 400, 350} {
			ids = append(ids, p.create(alice, func(c *sandbox.CreateRequest) {
				c.Limits.MemoryBytes, c.Timeout = mb<<20, time.Hour
			}).ID)
		}
		fork := func(index, n int) {
			t.Helper()
			time.Sleep(2 * time.Second) // not a burst together with the one before
			if _, err := p.Fork(t.Context(), alice, ids[index], sandbox.ForkRequest{Count: n, Timeout: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, megabytes ...int64) {
			t.Helper()
			var got []int64
			for _, s := range w.all() {
				for range s.Count {
					got = append(got, s.Spec.Limits.MemoryBytes>>20)
				}
			}
			if !slices.Equal(got, megabytes) {
				t.Errorf("%s: %d are kept, not %d", what, got, megabytes)
			}
		}
		fork(0, 1)
		fork(1, 1)
		want("two kinds", 512, 256)
		fork(0, 1)
		want("the first again", 256, 512)
		time.Sleep(2 * time.Minute)
		fork(0, 20)
		want("twenty of one", 256, 256, 256, 512)
		time.Sleep(4 * time.Minute)
		want("one not seen for long", 256, 256, 256, 256)
		for index := range ids {
			fork(index, 1)
		}
		want("more kinds than there is room for", 350, 400, 300, 512)
	})
}

// Pre-started kernels count towards the memory of warm sandboxes.
func TestPrestartedKernelsCountAsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, w := newWarmRig(t)
		p.options.Bytes = 50 << 20
		p.start()
		sb := p.create(alice)
		if _, err := p.Fork(t.Context(), alice, sb.ID, sandbox.ForkRequest{Count: 20, Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if _, n := w.latest(); n != 2 {
			t.Errorf("%d kernels in 50 MiB", n)
		}
		if status, _ := p.Pool(); status.Used < 40<<20 || status.Used > status.Budget {
			t.Errorf("%d bytes are used of %d", status.Used, status.Budget)
		}
	})
}
