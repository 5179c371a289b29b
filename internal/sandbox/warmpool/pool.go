// Package warmpool owns sandboxes that are ready before they are requested: how many of which kind,
// within which memory, from which template snapshots, and how one is transferred to a caller.
package warmpool

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/host/lockorder"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/demand"
)

// Options configure the pool, which always has a limit.
type Options struct {
	// Bytes is the memory that all warm sandboxes together may use; zero is a tenth of what is
	// available.
	Bytes int64
	// Defaults are requests for which one sandbox is always warm if there is enough memory, the
	// most important first.
	Defaults []sandbox.CreateRequest
	// Preload lists the languages that the code interpreter loads in warm sandboxes, by the
	// template's name.
	Preload map[string][]string
	// WarmUpAfter is the delay before a warm sandbox's warm-up, which executes a typical first
	// command without a caller. Zero disables the warm-up.
	WarmUpAfter time.Duration
	// Memory reads the machine's memory; nil reads /proc.
	Memory func() (demand.Memory, error)
}

const (
	// poolTick is how often memory is checked while sandboxes are warm, and poolIdle how often
	// otherwise.
	poolTick = 2 * time.Second
	poolIdle = 30 * time.Second
	// defaultKindsInterval is how often the usual kinds are determined again.
	defaultKindsInterval = 30 * time.Second
	// warmLifetime is the lifetime of a warm sandbox, so that none outlives its server for long,
	// and checkInterval the interval of the probes that extend it.
	warmLifetime  = 10 * time.Minute
	checkInterval = 4 * time.Minute
)

// rank is between the locks of package lifecycle, which calls the pool while it holds
// them, and those of package access.
type rank struct{}

func (rank) Rank() (int, string) { return 6, "warmpool.Pool.mu" }

// Pool keeps sandboxes ready for callers. Its exported methods may be called on a nil Pool, which
// keeps none.
type Pool struct {
	deps    Deps
	options Options
	*loop
	gauge  demand.Gauge // used by the loop only
	logged int64        // creations that were logged; used by the loop only

	mu             lockorder.Mutex[rank]
	closed         bool
	demand         demand.Counter
	kinds          map[string]*kind
	failedRemovals []*warm // sandboxes whose removal failed
	// retired are template snapshots to be removed.
	retired  []*templateSnapshot
	restores restores
	reported time.Time // when the state was last logged
	pace     demand.Pace
	backoff  demand.Backoff
	// defaultsUpdated is when the usual kinds were last determined.
	defaultsUpdated time.Time
	memory          demand.Memory
	budget          int64
	loading         bool // a kind with languages is being filled
}

// New returns a pool that keeps nothing ready until Start.
func New(d Deps, o Options) *Pool {
	if o.Memory == nil {
		o.Memory = hostMemory
	}
	return &Pool{deps: d, options: o, loop: newLoop(), gauge: demand.Gauge{Fixed: o.Bytes}, kinds: make(map[string]*kind)}
}

// Start begins to keep sandboxes ready, until Close.
func (p *Pool) Start() {
	for _, e := range p.deps.Engines.All() {
		if warmer, ok := e.(engine.Warmer); ok {
			warmer.Pace(func() (func(), bool) {
				turn := p.deps.Admission.Try()
				return func() { turn.Done(true) }, turn != nil
			})
		}
	}
	go p.run(p.step)
}

// Wake makes the pool check for work, because a caller no longer waits.
func (p *Pool) Wake() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.pace.End(time.Now())
	p.mu.Unlock()
	p.wakeNow()
}

// updateDefaultKinds determines the kinds of the usual requests. Their templates change with the
// host's programs, which makes existing warm sandboxes useless.
func (p *Pool) updateDefaultKinds(now time.Time) {
	p.mu.Lock()
	first, due := p.defaultsUpdated.IsZero(), now.Sub(p.defaultsUpdated) >= defaultKindsInterval
	if due {
		p.defaultsUpdated = now
	}
	p.mu.Unlock()
	if !due {
		return
	}
	var usual []*kind
	for _, req := range p.options.Defaults {
		k, err := p.kindOf(p.ctx, req)
		if err != nil {
			if first {
				p.deps.Log.Warn("warm sandboxes of a usual kind cannot be created", "template", req.Template, "err", err)
			}
			continue
		}
		k.preload = p.options.Preload[k.template.Name]
		usual = append(usual, k)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []string
	for _, k := range usual {
		p.addKind(k)
		if !slices.Contains(keys, k.key) {
			keys = append(keys, k.key)
		}
	}
	p.demand.Floor(keys)
}

// addKind adds a kind unless the pool has it. It gives up warm sandboxes with earlier programs of
// the template. p.mu must be held.
func (p *Pool) addKind(k *kind) {
	if p.kinds[k.key] != nil {
		return
	}
	for key, other := range p.kinds {
		if other.family == k.family {
			p.demand.Forget(key)
		}
	}
	p.kinds[k.key] = k
}

// Close ends all warm sandboxes.
func (p *Pool) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.halt()
	p.mu.Lock()
	all := p.failedRemovals
	for _, k := range p.kinds {
		all = slices.Concat(all, k.ready)
		k.ready = nil
		p.dropSnapshot(k)
	}
	p.failedRemovals = nil
	p.mu.Unlock()
	p.dropRetired()
	for name := range p.restores.engines {
		if warmer, ok := engine.As[engine.Warmer](p.deps.Engines, name); ok {
			warmer.Warm(nil)
		}
	}
	var group sync.WaitGroup
	for _, w := range all {
		group.Go(func() { p.discard(w) })
	}
	group.Wait()
	p.watches.Wait()
}

// DropAttached gives up all warm sandboxes with a network, when network attachments are lost.
func (p *Pool) DropAttached() {
	if p == nil {
		return
	}
	p.mu.Lock()
	var lost []*warm
	for _, k := range p.kinds {
		if k.attached {
			lost = append(lost, k.ready...)
			k.ready = nil
		}
	}
	p.mu.Unlock()
	for _, w := range lost {
		p.discard(w)
	}
	p.wakeNow()
}

// usage returns the memory of a warm sandbox, or 0 if it is unknown.
func (p *Pool) usage(ctx context.Context, name, id string) int64 {
	meter, ok := engine.As[engine.Meter](p.deps.Engines, name)
	if !ok {
		return 0
	}
	u, err := meter.Usage(ctx, id)
	if err != nil {
		return 0
	}
	return u.MemoryBytes
}
