package lifecycle

import (
	"reflect"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
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
func (p *pool) saved(r sandbox.Row) {
	if p == nil || r.Base.Copy != "" || r.Base.Root.Dir == "" {
		return
	}
	p.spare(engine.Spec{
		Root: r.Base.Root, Workspace: r.Workspace, Mounts: r.Base.HostBinds(), Links: r.Base.Links, Limits: r.Limits.Limits, Hide: r.Base.Hide, Absent: r.Base.Absent, ReadOnly: r.Base.ReadOnly,
	})
}

// goesOn notes that a sandbox continues from a saved state.
func (p *pool) goesOn(spec engine.Spec) {
	if p != nil {
		p.spare(spec)
	}
}

func (p *pool) spare(spec engine.Spec) {
	spec = spec.Bare()
	p.mu.Lock()
	p.restores.note(spec, time.Now())
	p.mu.Unlock()
	p.nudge()
}

// restores are what was last seen of sandboxes with a saved state.
type restores struct {
	seen  []restored // of different kinds, the last first
	warm  bool       // the engine has been told
	count int        // how many the engine is to have
}

// restored is what was last seen of sandboxes of one kind.
type restored struct {
	spec  engine.Spec
	at    time.Time
	burst int // how many followed each other closely
}

// note puts a kind first.
func (r *restores) note(spec engine.Spec, now time.Time) {
	next := restored{spec: spec, at: now, burst: 1}
	if at := slices.IndexFunc(r.seen, func(k restored) bool { return reflect.DeepEqual(k.spec, spec) }); at >= 0 {
		if before := r.seen[at]; now.Sub(before.at) <= time.Second {
			next.burst += before.burst
		}
		r.seen = slices.Delete(r.seen, at, at+1)
	}
	r.seen = slices.Insert(r.seen, 0, next)
	r.seen = r.seen[:min(len(r.seen), spareMost)]
}

// wanted is what is to wait where there is room for most: one of each kind that
// was seen lately, and of the last one as many as followed each other closely.
func (r *restores) wanted(now time.Time, most int) []engine.Spare {
	r.seen = slices.DeleteFunc(r.seen, func(k restored) bool { return now.Sub(k.at) >= spareTime })
	var all []engine.Spare
	for _, k := range r.seen[:min(len(r.seen), most)] {
		all = append(all, engine.Spare{Spec: k.spec, Count: 1})
	}
	if len(all) > 0 {
		all[0].Count = min(max(r.seen[0].burst/2, 1), most-len(all)+1)
	}
	return all
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
	all := r.wanted(now, min(spareMost, int(max(p.budget, 0)/spareBytes)))
	r.count = 0
	for _, one := range all {
		r.count += one.Count
	}
	told := r.warm
	r.warm = len(all) > 0
	p.mu.Unlock()
	if told || len(all) > 0 {
		warmer.Warm(all)
	}
}
