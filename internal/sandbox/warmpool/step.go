package warmpool

import (
	"log/slog"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/demand"
)

// step takes at most one action, and returns when to call it again.
func (p *Pool) step() time.Duration {
	now := time.Now()
	p.updateDefaultKinds(now)
	p.measure(now)
	p.dropRetired()
	p.prestart(now)
	p.report(now)
	if w := p.surplus(now); w != nil {
		p.discard(w)
		return 0
	}
	if w, l := p.dueProbe(now); w != nil {
		p.probe(w, l)
		return 0
	}
	k, turn, wait := p.lacking(now)
	if k == nil {
		if w, r, turn := p.nextWarmUp(now); w != nil {
			p.runWarmUp(w, r)
			turn.Done(r.err == nil)
			return 0
		}
		return wait
	}
	fill := func() error {
		err := p.fill(k)
		turn.Done(err == nil)
		return err
	}
	if len(k.preload) == 0 {
		return p.recordFill(k, fill(), wait)
	}
	// Languages take seconds to load. Requests for other kinds must not find an empty pool until
	// then.
	p.fills.Go(func() {
		p.recordFill(k, fill(), 0)
		p.wakeNow()
	})
	return 0
}

// recordFill records the result of making a sandbox of a kind, and returns when to step again.
func (p *Pool) recordFill(k *kind, err error, wait time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	k.filling = false
	if len(k.preload) > 0 {
		p.loading = false
	}
	if p.ctx.Err() != nil {
		return wait
	}
	if err == nil {
		p.backoff.Succeed()
		return 0
	}
	pause := p.backoff.Fail(time.Now())
	level := slog.LevelWarn
	if fault.CodeOf(err) == sandbox.CodeTooMany {
		level = slog.LevelDebug // callers use all places
	}
	p.deps.Log.Log(p.ctx, level, "warm sandbox not created", "kind", k.name, "err", err)
	return pause
}

// measure determines how much memory warm sandboxes may use. Memory that cannot be read counts as
// none.
func (p *Pool) measure(now time.Time) {
	m, err := p.options.Memory()
	if err != nil {
		p.deps.Log.Warn("memory not read: no sandbox is kept warm", "err", err)
		m = demand.Memory{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	used := p.restores.bytes()
	for _, k := range p.kinds {
		used += int64(len(k.ready)) * k.price()
	}
	before := p.budget
	p.memory, p.budget = m, p.gauge.Budget(m, used, now)
	if before > 0 && p.budget == 0 && used > 0 {
		p.deps.Log.Info("warm sandboxes removed to free memory", "available", m.Available, "stalled", m.Stalled)
	}
}

// wants returns how many of each kind should be warm. p.mu must be held.
func (p *Pool) wants(now time.Time) []demand.Share {
	list := p.demand.Shares(now, max(p.budget-p.restores.bytes(), 0), func(key string) int64 {
		if k := p.kinds[key]; k != nil {
			return k.price()
		}
		return 0 // the pool does not have this kind
	})
	for key, k := range p.kinds {
		if len(k.ready) == 0 && !k.filling && !p.demand.Known(key) {
			p.dropSnapshot(k)
			delete(p.kinds, key)
		}
	}
	return list
}

// surplus removes and returns a sandbox that is not wanted any more, or whose removal failed.
func (p *Pool) surplus(now time.Time) *warm {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.failedRemovals) > 0 && now.After(p.failedRemovals[0].retry) {
		w := p.failedRemovals[0]
		p.failedRemovals = p.failedRemovals[1:]
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

// dueProbe returns a sandbox that is due for a probe, and marks it as being probed.
func (p *Pool) dueProbe(now time.Time) (*warm, *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		for _, w := range k.ready {
			if now.Sub(w.probed) >= checkInterval {
				w.probed, w.probing = now, &task{done: make(chan struct{})}
				return w, w.probing
			}
		}
	}
	return nil, nil
}

// lacking returns a kind that needs another sandbox, marked as being filled, with the turn to
// create it; or when to step again.
func (p *Pool) lacking(now time.Time) (*kind, *admission.Turn, time.Duration) {
	busy := p.deps.Instances.Busy()
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := poolIdle
	for _, share := range p.wants(now) {
		k := p.kinds[share.Kind]
		idle = poolTick
		if len(k.ready) >= share.Count || k.filling || p.loading && len(k.preload) > 0 {
			continue
		}
		// A waiting caller takes precedence over a possible one.
		if left := p.pace.Left(now); busy || left > 0 {
			return nil, nil, max(left, demand.Hasty/4)
		}
		if left := p.backoff.Left(now); left > 0 {
			return nil, nil, min(left, poolTick)
		}
		turn := p.deps.Admission.Try()
		if turn == nil {
			return nil, nil, demand.Hasty // other processes are starting sandboxes
		}
		k.filling = true
		p.loading = p.loading || len(k.preload) > 0
		return k, turn, 0
	}
	return nil, nil, idle
}
