// Package warmpool owns sandboxes that are ready before they are asked for: how many of
// which kind, from what memory, from which template snapshots, and how one becomes a
// caller's.
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

// Options say what is kept ready. A pool is never without a bound.
type Options struct {
	// Bytes is the memory that all waiting sandboxes together may use; zero is
	// a tenth of what is available.
	Bytes int64
	// Usual are requests of which one sandbox always waits, if that is allowed,
	// the most important first.
	Usual []sandbox.CreateRequest
	// Preload names what the code interpreter has loaded in sandboxes that
	// wait, by the template's name.
	Preload map[string][]string
	// Rehearse is how long a sandbox has been warm before it first runs, without a
	// caller, what a caller will run. Zero leaves that first run to the caller.
	Rehearse time.Duration
	// Memory reads the machine's memory; nil reads /proc.
	Memory func() (demand.Memory, error)
}

const (
	// poolTick is how often memory is looked at while something waits, and
	// poolIdle how often otherwise.
	poolTick = 2 * time.Second
	poolIdle = 30 * time.Second
	// usualEvery is how often it is found out what the usual kinds are.
	usualEvery = 30 * time.Second
	// waitFor is when a waiting sandbox ends by itself, so that none outlives
	// its server for long, and lookEvery how often that is put off.
	waitFor   = 10 * time.Minute
	lookEvery = 4 * time.Minute
)

// rank is between the locks of package lifecycle, which calls the pool while it holds
// them, and those of package access.
type rank struct{}

func (rank) Rank() (int, string) { return 6, "warmpool.Pool.mu" }

// Pool keeps sandboxes ready for callers to come. Its exported methods may be called on
// nil, which keeps none.
type Pool struct {
	deps    Deps
	options Options
	*loop
	gauge  demand.Gauge // of the loop
	logged int64        // creations that the log has mentioned, of the loop

	mu     lockorder.Mutex[rank]
	closed bool
	book   demand.Book
	kinds  map[string]*kind
	doomed []*warm // whose removal failed
	// retired are template snapshots to be dropped.
	retired  []*templateSnapshot
	restores restores
	reported time.Time // when the state was last logged
	pace     demand.Pace
	backoff  demand.Backoff
	// settled is when it was last found out what the usual kinds are.
	settled time.Time
	memory  demand.Memory
	budget  int64
	loading bool // a kind with languages to load is being filled
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

// Rouse lets the pool look at what there is to do, when a caller waits no more.
func (p *Pool) Rouse() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.pace.End(time.Now())
	p.mu.Unlock()
	p.nudge()
}

// usual finds out of which kinds the usual requests are now: their templates
// change with the host's programs, and what waits is then of no more use.
func (p *Pool) usual(now time.Time) {
	p.mu.Lock()
	first, due := p.settled.IsZero(), now.Sub(p.settled) >= usualEvery
	if due {
		p.settled = now
	}
	p.mu.Unlock()
	if !due {
		return
	}
	var usual []*kind
	for _, req := range p.options.Usual {
		k, err := p.kindOf(p.ctx, req)
		if err != nil {
			if first {
				p.deps.Log.Warn("no sandbox of a usual kind will wait", "template", req.Template, "err", err)
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
	p.book.Floor(keys)
}

// addKind makes a kind known, if it is not. What waits with earlier programs of
// the template is forgotten. p.mu must be held.
func (p *Pool) addKind(k *kind) {
	if p.kinds[k.key] != nil {
		return
	}
	for key, other := range p.kinds {
		if other.family == k.family {
			p.book.Forget(key)
		}
	}
	p.kinds[k.key] = k
}

// Close ends all that waits.
func (p *Pool) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.halt()
	p.mu.Lock()
	all := p.doomed
	for _, k := range p.kinds {
		all = slices.Concat(all, k.ready)
		k.ready = nil
		p.retire(k)
	}
	p.doomed = nil
	p.mu.Unlock()
	p.dropRetired()
	for name := range p.restores.told {
		if warmer, ok := engine.Ability[engine.Warmer](p.deps.Engines, name); ok {
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

// DropLinked gives up all that waits with a network, when network attachments are lost.
func (p *Pool) DropLinked() {
	if p == nil {
		return
	}
	p.mu.Lock()
	var lost []*warm
	for _, k := range p.kinds {
		if k.linked {
			lost = append(lost, k.ready...)
			k.ready = nil
		}
	}
	p.mu.Unlock()
	for _, w := range lost {
		p.discard(w)
	}
	p.nudge()
}

// usage is what a waiting sandbox uses, or 0 if that is not known.
func (p *Pool) usage(ctx context.Context, name, id string) int64 {
	meter, ok := engine.Ability[engine.Meter](p.deps.Engines, name)
	if !ok {
		return 0
	}
	u, err := meter.Usage(ctx, id)
	if err != nil {
		return 0
	}
	return u.MemoryBytes
}
