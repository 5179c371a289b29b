package gvisor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// refillAfter is how long after a spare kernel was taken the next one is made.
const refillAfter = 250 * time.Millisecond

// prestartedTimeout bounds the making of a spare kernel.
const prestartedTimeout = time.Minute

// prestarted are kernels that wait for a sandbox to continue in them.
type prestarted struct {
	mu     sync.Mutex
	stocks []*stock // of the kinds that are wanted
	making bool
	later  *time.Timer // makes the next one; nil if none is due
	closed bool
	done   sync.WaitGroup
	turn   func() (done func(), ok bool) // asked before one is made; nil always allows it
}

// stock are the spare kernels of one kind.
type stock struct {
	kind string
	spec engine.Spec
	want int
	have []*kernel
}

// Pace implements engine.Warmer.
func (e *Engine) Pace(turn func() (done func(), ok bool)) {
	e.spares.mu.Lock()
	defer e.spares.mu.Unlock()
	e.spares.turn = turn
}

// Warm implements engine.Warmer.
func (e *Engine) Warm(wanted []engine.Prestarted) {
	var next []*stock
	for _, w := range wanted {
		w.Spec.Limits = w.Spec.Limits.OrDefault()
		if kind := kindOf(w.Spec); kind != "" && w.Count > 0 {
			next = append(next, &stock{kind: kind, spec: w.Spec, want: w.Count})
		}
	}
	s := &e.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	var drop []*kernel
	for _, old := range s.stocks {
		for _, k := range old.have {
			if !give(next, old.kind, k) {
				drop = append(drop, k)
			}
		}
	}
	s.stocks = next
	if len(drop) > 0 {
		s.done.Go(func() {
			for _, k := range drop {
				k.discard()
			}
		})
	}
	if s.later == nil {
		e.refill()
	}
}

// give adds a kernel to the stock of its kind, and reports whether one has
// room for it.
func give(stocks []*stock, kind string, k *kernel) bool {
	for _, st := range stocks {
		if st.kind == kind && len(st.have) < st.want {
			st.have = append(st.have, k)
			return true
		}
	}
	return false
}

// Spares returns how many spare kernels wait.
func (e *Engine) Spares() int {
	e.spares.mu.Lock()
	defer e.spares.mu.Unlock()
	n := 0
	for _, st := range e.spares.stocks {
		n += len(st.have)
	}
	return n
}

// refill makes spare kernels, one after the other, until there are as many as
// are wanted. e.spares.mu must be held.
func (e *Engine) refill() {
	s := &e.spares
	at := slices.IndexFunc(s.stocks, func(st *stock) bool { return len(st.have) < st.want })
	if s.making || s.closed || at < 0 {
		return
	}
	done := func() {}
	if s.turn != nil {
		allowed, ok := s.turn()
		if !ok {
			e.refillLater()
			return
		}
		done = allowed
	}
	s.making = true
	short := s.stocks[at]
	s.done.Go(func() {
		defer done()
		ctx, cancel := context.WithTimeout(context.Background(), prestartedTimeout)
		defer cancel()
		k, err := e.newPrestartedSlowly(ctx, short.spec)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making = false
		switch {
		case err != nil:
			e.log.Warn("no spare kernel", "err", err)
			short.want = 0 // until the next request
		case s.closed || !give(s.stocks, short.kind, k):
			s.done.Go(k.discard)
		default:
			e.log.Debug("spare kernel waits", "kernel", k.b.rec.Kernel)
		}
		e.refill()
	})
}

// refillLater makes the next spare kernel once the sandbox that took one has started in
// it: making one takes as much of the processors as that start. e.spares.mu must be
// held.
func (e *Engine) refillLater() {
	s := &e.spares
	if s.later != nil || s.closed {
		return
	}
	s.later = time.AfterFunc(refillAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.later = nil
		e.refill()
	})
}

// takePrestarted returns a spare kernel that fits and is alive, or nil.
func (e *Engine) takePrestarted(spec engine.Spec) *kernel {
	kind := kindOf(spec)
	s := &e.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.stocks, func(st *stock) bool { return st.kind == kind })
	if at < 0 {
		return nil
	}
	for st := s.stocks[at]; len(st.have) > 0; {
		k := st.have[0]
		st.have = st.have[1:]
		e.refillLater()
		if k.b.rec.Sentry.Alive() {
			e.log.Debug("spare kernel taken", "kernel", k.b.rec.Kernel, "sandbox", spec.ID)
			return k
		}
		s.done.Go(k.discard)
	}
	return nil
}

// Close drops the spare kernels. Sandboxes continue to run.
func (e *Engine) Close() error {
	e.balance.Stop()
	s := &e.spares
	s.mu.Lock()
	s.closed = true
	if s.later != nil {
		s.later.Stop()
	}
	drop := s.stocks
	s.stocks = nil
	s.mu.Unlock()
	for _, st := range drop {
		for _, k := range st.have {
			k.discard()
		}
	}
	s.done.Wait()
	return nil
}
