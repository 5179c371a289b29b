package lifecycle_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// onBlindEngine returns a rig whose engine has a boundary, shows no limits inside and does not
// enforce some of the limits that it reports.
func onBlindEngine(t *testing.T, ignores ...engine.Limit) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), ends: make(map[string]time.Time)}
	r.open(func(d *lifecycle.Deps) {
		e, err := fake.New(fake.Options{
			Dir: filepath.Join(r.dir, "run-other"), Name: "other", Boundary: engine.UserspaceKernel, Guest: r.guest, Enforces: enforced, Ignores: ignores,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		d.Engines = fake.Registry(append(d.Engines.All(), e)...)
	})
	t.Cleanup(func() {
		r.close()
		r.engine.Close()
	})
	return r
}

// An engine that shares the host's kernel enforces limits, but its programs see the host's figures.
// So the engine is asked about the limits, not the guest.
func TestLimitsHoldWhereTheInsideShowsTheHost(t *testing.T) {
	r := onBlindEngine(t)
	sb := r.create(alice, on("other"))
	r.mu.Lock()
	config := r.boots[len(r.boots)-1]
	r.mu.Unlock()
	if c := config.Checks; c.MemoryBytes != 0 || c.PIDs != 0 || c.DiskBytes != 0 || !config.HostMemory {
		t.Errorf("the guest is asked for %+v, and told that memory is the host's: %t", c, config.HostMemory)
	}
	if !slices.ContainsFunc(sb.Checked, func(s string) bool { return strings.HasPrefix(s, "checked from outside: at most ") }) {
		t.Errorf("checked is %q", sb.Checked)
	}
	if _, err := r.Pause(t.Context(), alice, sb.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Resume(t.Context(), alice, sb.ID, 0); err != nil {
		t.Fatal(err)
	}
}

func TestClaimedLimitThatDoesNotHoldIsRefused(t *testing.T) {
	r := onBlindEngine(t, engine.LimitCPU)
	_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Engine: "other"})
	if fault.CodeOf(err) != "limit_not_effective" || fault.KindOf(err) != fault.Unsupported || !strings.Contains(fault.PublicText(err), "cpus") {
		t.Errorf("got %v", err)
	}
	if left := r.holds("other"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
