package warmpool

import (
	"reflect"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
)

// Limits of pre-started kernels: the engine starts them in advance for sandboxes that are restored
// from a saved state.
const (
	// prestartTime is how long after the last restore they are kept.
	prestartTime = 5 * time.Minute
	maxPrestart  = 4
	// prestartBytes is the assumed memory of one. It is the measured memory of an idle kernel, its
	// file server and the host's tables for them, plus its allocations in advance for a state and a
	// reserve.
	prestartBytes = 20 << 20
)

// Saved records that the state of a sandbox was saved, which will probably be restored later.
func (p *Pool) Saved(r sandbox.Row) {
	if p == nil || r.Base.Copy != "" || len(r.Base.Volumes) > 0 || r.Base.Image.Kind() == "" {
		return
	}
	p.noteRestore(r.Engine, engine.Spec{
		Image: r.Base.Image, Workspace: r.Workspace, TakesWorkspace: r.Base.TakesWorkspace, Mounts: r.Base.HostBinds(), Links: r.Base.Links, Limits: r.Limits.Limits, Hide: r.Base.Hide, Absent: r.Base.Absent, ReadOnly: r.Base.ReadOnly,
	})
}

// Restored records that a sandbox is restored from a saved state.
func (p *Pool) Restored(name string, spec engine.Spec) {
	// A kernel without a sandbox would keep the files of a volume open, which may be removed.
	if p != nil && len(spec.Volumes) == 0 {
		p.noteRestore(name, spec)
	}
}

func (p *Pool) noteRestore(name string, spec engine.Spec) {
	spec = spec.Bare()
	p.mu.Lock()
	p.restores.note(name, spec, time.Now())
	p.mu.Unlock()
	p.wakeNow()
}

// restores records which sandboxes with a saved state were used recently.
type restores struct {
	seen    []restored      // of different kinds, the last first
	engines map[string]bool // engines that were requested to have pre-started kernels
	count   int             // how many kernels the engines should have
}

// restored is the recent history of sandboxes of one kind.
type restored struct {
	engine string
	spec   engine.Spec
	at     time.Time
	burst  int // restores that followed each other within a second
}

// note moves a kind to the front.
func (r *restores) note(name string, spec engine.Spec, now time.Time) {
	next := restored{engine: name, spec: spec, at: now, burst: 1}
	if at := slices.IndexFunc(r.seen, func(k restored) bool { return k.engine == name && reflect.DeepEqual(k.spec, spec) }); at >= 0 {
		if before := r.seen[at]; now.Sub(before.at) <= time.Second {
			next.burst += before.burst
		}
		r.seen = slices.Delete(r.seen, at, at+1)
	}
	r.seen = slices.Insert(r.seen, 0, next)
	r.seen = r.seen[:min(len(r.seen), maxPrestart)]
}

// wanted returns at most limit kernels to start in advance: one for each recent kind, and more for
// the last kind if its sandboxes were restored in quick succession.
func (r *restores) wanted(now time.Time, limit int) []prestarted {
	r.seen = slices.DeleteFunc(r.seen, func(k restored) bool { return now.Sub(k.at) >= prestartTime })
	var all []prestarted
	for _, k := range r.seen[:min(len(r.seen), limit)] {
		all = append(all, prestarted{k.engine, engine.Prestarted{Spec: k.spec, Count: 1}})
	}
	if len(all) > 0 {
		all[0].Count = min(max(r.seen[0].burst/2, 1), limit-len(all)+1)
	}
	return all
}

// bytes returns how much of the warm memory the pre-started kernels use.
func (r *restores) bytes() int64 { return int64(r.count) * prestartBytes }

// prestarted describes the kernels that an engine should have ready.
type prestarted struct {
	engine string
	engine.Prestarted
}

// prestart sends the engines the list of kernels to have ready. It does not wait for a quiet time:
// an engine starts one after the other, and the next restore probably comes soon.
func (p *Pool) prestart(now time.Time) {
	p.mu.Lock()
	r := &p.restores
	all := r.wanted(now, min(maxPrestart, int(max(p.budget, 0)/prestartBytes)))
	r.count = 0
	byEngine := make(map[string][]engine.Prestarted)
	for name := range r.engines {
		byEngine[name] = nil // an engine that is not in the new list gets an empty one
	}
	r.engines = make(map[string]bool)
	for _, k := range all {
		if _, ok := engine.As[engine.Warmer](p.deps.Engines, k.engine); !ok {
			continue
		}
		r.count += k.Count
		r.engines[k.engine] = true
		byEngine[k.engine] = append(byEngine[k.engine], k.Prestarted)
	}
	p.mu.Unlock()
	for name, list := range byEngine {
		if warmer, ok := engine.As[engine.Warmer](p.deps.Engines, name); ok {
			warmer.Warm(list)
		}
	}
}
