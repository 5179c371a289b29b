package sandbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox/demand"
)

// PoolOptions say what is kept ready. A pool is never without a bound.
type PoolOptions struct {
	// Bytes is the memory that all waiting sandboxes together may use; zero is
	// a tenth of what is available.
	Bytes int64
	// Usual are requests of which one sandbox always waits, if that is allowed,
	// the most important first.
	Usual []CreateRequest
	// Preload names what the code interpreter has loaded in sandboxes that
	// wait, by the template's name.
	Preload map[string][]string
	// Memory reads the machine's memory; nil reads /proc.
	Memory func() (demand.Memory, error)
}

const (
	// quiet is how long there must have been no creation before a sandbox is
	// made that nobody has asked for yet.
	quiet = 20 * time.Millisecond
	// poolTick is how often memory is looked at while something waits, and
	// poolIdle how often otherwise.
	poolTick = 2 * time.Second
	poolIdle = 30 * time.Second
	// waitFor is when a waiting sandbox ends by itself, so that none outlives
	// its server for long, and lookEvery how often that is put off.
	waitFor   = 10 * time.Minute
	lookEvery = 4 * time.Minute
	// failPause is how long nothing is made after a failure; it doubles with
	// each further one, up to failPauseMax.
	failPause    = 5 * time.Second
	failPauseMax = 5 * time.Minute
)

// pool keeps sandboxes ready for callers to come. Its methods may be called on
// nil, which keeps none.
type pool struct {
	s       *Service
	options PoolOptions
	ctx     context.Context
	stop    context.CancelFunc
	ended   chan struct{}
	wake    chan struct{}
	watches sync.WaitGroup
	gauge   demand.Gauge // of the loop

	mu     sync.Mutex
	closed bool
	book   demand.Book
	kinds  map[string]*kind
	doomed []*waiting // whose removal failed
	// retired are zygotes to be dropped.
	retired  []*zygote
	restores restores
	last     time.Time // when a creation was last under way
	memory   demand.Memory
	budget   int64
	pause    time.Duration
	resume   time.Time // when something may be made again
}

// StartPool begins to keep sandboxes ready, until Close. It is called once,
// after Reconcile, and only by a process that stays.
func (s *Service) StartPool(o PoolOptions) {
	if o.Memory == nil {
		o.Memory = hostMemory
	}
	p := &pool{
		s: s, options: o, gauge: demand.Gauge{Fixed: o.Bytes}, ended: make(chan struct{}),
		wake: make(chan struct{}, 1), kinds: make(map[string]*kind),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if !s.pool.CompareAndSwap(nil, p) {
		panic("sandbox: the pool was started before")
	}
	go p.run()
}

// rouse lets the pool look at what there is to do.
func (p *pool) rouse() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.last = time.Now()
	p.mu.Unlock()
	p.nudge()
}

func (p *pool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pool) run() {
	defer close(p.ended)
	p.usual()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		timer.Reset(p.step())
	}
}

// usual makes the kinds of the usual requests known.
func (p *pool) usual() {
	var usual []*kind
	for _, req := range p.options.Usual {
		k, err := p.s.kindOf(p.ctx, req)
		if err != nil {
			p.s.log.Warn("no sandbox of a usual kind will wait", "template", req.Template, "err", err)
			continue
		}
		k.preload = p.options.Preload[k.template.Name]
		usual = append(usual, k)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []string
	for _, k := range usual {
		if p.kinds[k.key] == nil {
			p.kinds[k.key] = k
		}
		if !slices.Contains(keys, k.key) {
			keys = append(keys, k.key)
		}
	}
	p.book.Floor(keys)
}

// step does at most one thing, and returns when to look again.
func (p *pool) step() time.Duration {
	now := time.Now()
	p.measure(now)
	p.bury()
	p.warm(now)
	if w := p.surplus(now); w != nil {
		p.discard(w)
		return 0
	}
	if w := p.overdue(now); w != nil {
		p.look(w)
		return 0
	}
	k, wait := p.lacking(now)
	if k == nil {
		return wait
	}
	err := p.fill(k)
	if p.ctx.Err() != nil {
		return wait
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.pause = 0
		return 0
	}
	p.pause = min(max(2*p.pause, failPause), failPauseMax)
	p.resume = time.Now().Add(p.pause)
	p.s.log.Warn("no sandbox made to wait", "kind", k.name, "err", err)
	return p.pause
}

// measure finds out how much may wait. What cannot be read is no memory.
func (p *pool) measure(now time.Time) {
	m, err := p.options.Memory()
	if err != nil {
		p.s.log.Warn("memory not read: nothing will wait", "err", err)
		m = demand.Memory{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var used int64
	for _, k := range p.kinds {
		used += int64(len(k.ready)) * k.price()
	}
	before := p.budget
	p.memory, p.budget = m, p.gauge.Budget(m, used, now)
	if before > 0 && p.budget == 0 && used > 0 {
		p.s.log.Info("waiting sandboxes make room", "available", m.Available, "stalled", m.Stalled)
	}
}

// wants is how many of each kind are to wait. p.mu must be held.
func (p *pool) wants(now time.Time) []demand.Share {
	list := p.book.Want(now, p.budget, func(key string) int64 {
		if k := p.kinds[key]; k != nil {
			return k.price()
		}
		return 0 // none
	})
	for key, k := range p.kinds {
		if len(k.ready) == 0 && !p.book.Known(key) {
			p.retire(k)
			delete(p.kinds, key)
		}
	}
	return list
}

// surplus takes one that need not wait any more, or whose removal failed.
func (p *pool) surplus(now time.Time) *waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.doomed) > 0 && now.After(p.doomed[0].retry) {
		w := p.doomed[0]
		p.doomed = p.doomed[1:]
		return w
	}
	want := make(map[string]int)
	for _, share := range p.wants(now) {
		want[share.Kind] = share.Count
	}
	for key, k := range p.kinds {
		if len(k.ready) > want[key] {
			return k.take()
		}
	}
	return nil
}

// overdue is one that has not been looked at for long.
func (p *pool) overdue(now time.Time) *waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		for _, w := range k.ready {
			if now.Sub(w.looked) >= lookEvery {
				w.looked = now
				return w
			}
		}
	}
	return nil
}

// lacking is a kind of which one more is to wait and may be made now, or when
// to look again.
func (p *pool) lacking(now time.Time) (*kind, time.Duration) {
	busy := p.s.busy()
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := poolIdle
	for _, share := range p.wants(now) {
		k := p.kinds[share.Kind]
		idle = poolTick
		if len(k.ready) >= share.Count {
			continue
		}
		// Who has asked goes before who may ask.
		if since := now.Sub(p.last); busy || since < quiet {
			return nil, max(quiet-since, quiet/4)
		}
		if now.Before(p.resume) {
			return nil, min(p.resume.Sub(now), poolTick)
		}
		return k, 0
	}
	return nil, idle
}

// busy tells whether a creation is under way.
func (s *Service) busy() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.creating) > 0
}

// close ends all that waits.
func (p *pool) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	<-p.ended
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
	if warmer, ok := p.s.engine.(engine.Warmer); ok && p.restores.warm {
		warmer.Warm(p.restores.spec, 0)
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
func (s *Service) usage(ctx context.Context, id string) int64 {
	meter, ok := s.engine.(engine.Meter)
	if !ok {
		return 0
	}
	u, err := meter.Usage(ctx, id)
	if err != nil {
		return 0
	}
	return u.MemoryBytes
}
