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

// newRigWithHiddenLimits returns a rig whose engine has a boundary, shows no limits inside and does
// not enforce some of the limits that it reports.
func newRigWithHiddenLimits(t *testing.T, ignores ...engine.Limit) *rig {
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

// TestHiddenLimitsAreCheckedOutside checks that the limits of an engine that shares the host's
// kernel are read from the engine. Programs inside see the values of the host, so the guest cannot
// check.
func TestHiddenLimitsAreCheckedOutside(t *testing.T) {
	r := newRigWithHiddenLimits(t)
	sb := r.create(alice, onEngine("other"))
	r.mu.Lock()
	config := r.boots[len(r.boots)-1]
	r.mu.Unlock()
	if c := config.Checks; c.MemoryBytes != 0 || c.PIDs != 0 || c.DiskBytes != 0 || !config.HostMemory {
		t.Errorf("the guest checks %+v, and HostMemory is %t", c, config.HostMemory)
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

func TestUnenforcedLimitIsRejected(t *testing.T) {
	r := newRigWithHiddenLimits(t, engine.LimitCPU)
	_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Engine: "other"})
	if fault.CodeOf(err) != "limit_not_effective" || fault.KindOf(err) != fault.Unsupported || !strings.Contains(fault.PublicText(err), "cpus") {
		t.Errorf("limit that is not enforced: got error %v, want limit_not_effective about cpus", err)
	}
	if left := r.instancesOn("other"); len(left) != 0 {
		t.Errorf("instances remain: %v", left)
	}
}
