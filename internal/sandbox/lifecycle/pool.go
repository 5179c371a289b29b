package lifecycle

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

// PoolOptions say what is kept ready. A pool is never without a bound.
type PoolOptions struct {
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

// pool keeps sandboxes ready for callers to come. Its methods may be called on
// nil, which keeps none.
type pool struct {
	s       *Service
	options PoolOptions
	*loop
	gauge demand.Gauge // of the loop
	told  int64        // creations that the log has told of, of the loop

	mu     lockorder.Mutex[rankPool]
	closed bool
	book   demand.Book
	kinds  map[string]*kind
	doomed []*waiting // whose removal failed
	// retired are zygotes to be dropped.
	retired  []*zygote
	restores restores
	reported time.Time // when the log last said what waits
	pace     demand.Pace
	backoff  demand.Backoff
	// settled is when it was last found out what the usual kinds are.
	settled time.Time
	memory  demand.Memory
	budget  int64
	loading bool // a kind with languages to load is being filled
}

// StartPool begins to keep sandboxes ready, until Close. It is called once,
// after Reconcile, and only by a process that stays.
func (s *Service) StartPool(o PoolOptions) {
	if o.Memory == nil {
		o.Memory = hostMemory
	}
	p := &pool{s: s, options: o, loop: newLoop(), gauge: demand.Gauge{Fixed: o.Bytes}, kinds: make(map[string]*kind)}
	for _, e := range s.engines.All() {
		if warmer, ok := e.(engine.Warmer); ok {
			warmer.Pace(func() (func(), bool) {
				turn := s.admission.Try()
				return func() { turn.Done(true) }, turn != nil
			})
		}
	}
	if !s.pool.CompareAndSwap(nil, p) {
		panic("sandbox: the pool was started before")
	}
	go p.run(p.step)
}

// rouse lets the pool look at what there is to do.
func (p *pool) rouse() {
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
func (p *pool) usual(now time.Time) {
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
		k, err := p.s.kindOf(p.ctx, req)
		if err != nil {
			if first {
				p.s.log.Warn("no sandbox of a usual kind will wait", "template", req.Template, "err", err)
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
		p.meet(k)
		if !slices.Contains(keys, k.key) {
			keys = append(keys, k.key)
		}
	}
	p.book.Floor(keys)
}

// meet makes a kind known, if it is not. What waits with earlier programs of
// the template is forgotten. p.mu must be held.
func (p *pool) meet(k *kind) {
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

// close ends all that waits.
func (p *pool) close() {
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
	p.bury()
	for name := range p.restores.told {
		if warmer := p.s.engines.warmer(name); warmer != nil {
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

// drop gives up all that waits with a link, when links are lost.
func (p *pool) dropLinked() {
	if p == nil {
		return
	}
	p.mu.Lock()
	var lost []*waiting
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
func (s *Service) usage(ctx context.Context, name, id string) int64 {
	meter := s.engines.meter(name)
	if meter == nil {
		return 0
	}
	u, err := meter.Usage(ctx, id)
	if err != nil {
		return 0
	}
	return u.MemoryBytes
}
