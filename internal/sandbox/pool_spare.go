package sandbox

import (
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// What the engine is to have ready for sandboxes that go on from a saved
// state.
const (
	// spareTime is how long after the last one.
	spareTime = 5 * time.Minute
	spareMost = 4
	// spareBytes is what one is counted as: what a kernel that runs nothing, its
	// file server and the host's tables for them were measured to need, what it
	// takes beforehand for a state that it will read, and some.
	spareBytes = 20 << 20
)

// saved says that a sandbox was written down, and will go on some time.
func (p *pool) saved(r Record) {
	if p == nil || r.Base.Copy != "" || r.Base.Root.Dir == "" {
		return
	}
	p.spare(engine.Spec{
		Root: r.Base.Root, Workspace: r.Workspace, Limits: r.Limits.Limits, Hide: r.Base.Hide, ReadOnly: r.Base.ReadOnly,
	})
}

// restored says that a sandbox goes on from a saved state.
func (p *pool) restored(spec engine.Spec) {
	if p != nil {
		p.spare(spec)
	}
}

func (p *pool) spare(spec engine.Spec) {
	spec.ID, spec.Hostname, spec.GuestConfig, spec.Link, spec.Archive = "", "", nil, nil, nil
	spec.Events = nil
	p.mu.Lock()
	now := time.Now()
	if now.Sub(p.restores.at) > time.Second {
		p.restores.burst = 0
	}
	p.restores.spec, p.restores.at = spec, now
	p.restores.burst++
	p.mu.Unlock()
	p.nudge()
}

// restores are what was last seen of sandboxes with a saved state.
type restores struct {
	spec  engine.Spec
	at    time.Time
	burst int  // how many followed each other closely
	warm  bool // the engine has been told
	count int  // how many the engine is to have
}

// bytes is what the spare kernels take of the memory that may wait.
func (r *restores) bytes() int64 { return int64(r.count) * spareBytes }

// warm tells the engine what to have ready. It does not wait for quiet: the
// engine makes one after the other, and the next restore comes soon if any.
func (p *pool) warm(now time.Time) {
	warmer, ok := p.s.engine.(engine.Warmer)
	if !ok {
		return
	}
	p.mu.Lock()
	r := &p.restores
	wanted := !r.at.IsZero() && now.Sub(r.at) < spareTime && p.budget > 0
	n := 0
	if wanted {
		n = min(max(r.burst/2, 1), spareMost, int(p.budget/spareBytes))
	}
	r.count = n
	told := r.warm
	r.warm = wanted
	spec := r.spec
	p.mu.Unlock()
	if wanted || told {
		warmer.Warm(spec, n)
	}
}
