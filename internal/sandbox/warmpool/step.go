package warmpool

import (
	"log/slog"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/demand"
)

// step does at most one thing, and returns when to look again.
func (p *Pool) step() time.Duration {
	now := time.Now()
	p.usual(now)
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
		if w, r, turn := p.unrehearsed(now); w != nil {
			p.rehearse(w, r)
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
		return p.filled(k, fill(), wait)
	}
	// Languages take seconds to load. Requests for other kinds need not find an
	// empty pool until then.
	p.lanes.Go(func() {
		p.filled(k, fill(), 0)
		p.nudge()
	})
	return 0
}

// filled notes how making a sandbox of a kind went, and returns when to look
// again.
func (p *Pool) filled(k *kind, err error, wait time.Duration) time.Duration {
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
		level = slog.LevelDebug // callers have all the places that there are
	}
	p.deps.Log.Log(p.ctx, level, "no sandbox made to wait", "kind", k.name, "err", err)
	return pause
}

// measure finds out how much may wait. What cannot be read is no memory.
func (p *Pool) measure(now time.Time) {
	m, err := p.options.Memory()
	if err != nil {
		p.deps.Log.Warn("memory not read: nothing will wait", "err", err)
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
		p.deps.Log.Info("waiting sandboxes make room", "available", m.Available, "stalled", m.Stalled)
	}
}

// wants is how many of each kind are to wait. p.mu must be held.
func (p *Pool) wants(now time.Time) []demand.Share {
	list := p.book.Want(now, max(p.budget-p.restores.bytes(), 0), func(key string) int64 {
		if k := p.kinds[key]; k != nil {
			return k.price()
		}
		return 0 // none
	})
	for key, k := range p.kinds {
		if len(k.ready) == 0 && !k.filling && !p.book.Known(key) {
			p.retire(k)
			delete(p.kinds, key)
		}
	}
	return list
}

// surplus takes one that need not wait any more, or whose removal failed.
func (p *Pool) surplus(now time.Time) *warm {
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

// dueProbe is one that has not been looked at for long, and counts as being
// looked at from here on.
func (p *Pool) dueProbe(now time.Time) (*warm, *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kinds {
		for _, w := range k.ready {
			if now.Sub(w.probed) >= lookEvery {
				w.probed, w.probing = now, &task{over: make(chan struct{})}
				return w, w.probing
			}
		}
	}
	return nil, nil
}

// lacking returns a kind of which one more is to wait and may be made now, which
// then counts as being filled, with the turn to make it, or when to look again.
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
		// A caller that has asked comes before one that may ask.
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
