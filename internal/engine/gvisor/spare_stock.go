package gvisor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
)

// refillAfter is the delay between the use of a prestarted kernel and the creation of the next.
const refillAfter = 250 * time.Millisecond

// prestartedTimeout bounds the creation of a prestarted kernel.
const prestartedTimeout = time.Minute

// prestarted holds the kernels that wait for a sandbox.
type prestarted struct {
	mu       sync.Mutex
	stocks   []*stock    // of the requested kinds
	creating bool        // whether a kernel is being created
	refill   *time.Timer // calls refill; nil if no refill is due
	closed   bool
	done     sync.WaitGroup                // goroutines that create or discard kernels
	acquire  func() (done func(), ok bool) // set by Pace, or nil
}

// stock holds the prestarted kernels of one kind.
type stock struct {
	kind string
	spec engine.Spec
	want int // how many kernels were requested
	have []*kernel
}

// Pace implements engine.Warmer.
func (e *Engine) Pace(acquire func() (done func(), ok bool)) {
	e.spares.mu.Lock()
	defer e.spares.mu.Unlock()
	e.spares.acquire = acquire
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
	var unwanted []*kernel
	for _, old := range s.stocks {
		for _, k := range old.have {
			if !addToStock(next, old.kind, k) {
				unwanted = append(unwanted, k)
			}
		}
	}
	s.stocks = next
	if len(unwanted) > 0 {
		s.done.Go(func() {
			for _, k := range unwanted {
				k.discard()
			}
		})
	}
	if s.refill == nil {
		e.refill()
	}
}

// addToStock adds a kernel to the stock of its kind, and reports whether the stock had room for it.
func addToStock(stocks []*stock, kind string, k *kernel) bool {
	for _, st := range stocks {
		if st.kind == kind && len(st.have) < st.want {
			st.have = append(st.have, k)
			return true
		}
	}
	return false
}

// Prestarted returns the number of prestarted kernels.
func (e *Engine) Prestarted() int {
	e.spares.mu.Lock()
	defer e.spares.mu.Unlock()
	n := 0
	for _, st := range e.spares.stocks {
		n += len(st.have)
	}
	return n
}

// refill starts kernels, one after the other, until there are as many as requested. The caller
// holds e.spares.mu.
func (e *Engine) refill() {
	s := &e.spares
	at := slices.IndexFunc(s.stocks, func(st *stock) bool { return len(st.have) < st.want })
	if s.creating || s.closed || at < 0 {
		return
	}
	done := func() {}
	if s.acquire != nil {
		release, ok := s.acquire()
		if !ok {
			e.refillLater()
			return
		}
		done = release
	}
	s.creating = true
	target := s.stocks[at]
	s.done.Go(func() {
		defer done()
		ctx, cancel := context.WithTimeout(context.Background(), prestartedTimeout)
		defer cancel()
		k, err := e.newPrestartedSlowly(ctx, target.spec)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.creating = false
		switch {
		case err != nil:
			e.log.Warn("cannot prestart a kernel", "err", err)
			target.want = 0 // do not retry until the next call of Warm
		case s.closed || !addToStock(s.stocks, target.kind, k):
			s.done.Go(k.discard)
		default:
			e.log.Debug("prestarted kernel is ready", "kernel", k.b.rec.Kernel)
		}
		e.refill()
	})
}

// refillLater calls refill after refillAfter. By then the sandbox that uses a prestarted kernel has
// started, and the creation of the next kernel does not delay it. The caller holds e.spares.mu.
func (e *Engine) refillLater() {
	s := &e.spares
	if s.refill != nil || s.closed {
		return
	}
	s.refill = time.AfterFunc(refillAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refill = nil
		e.refill()
	})
}

// takePrestarted removes a running prestarted kernel of a specification's kind from its stock and
// returns it, or returns nil.
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
			e.log.Debug("prestarted kernel is used", "kernel", k.b.rec.Kernel, "sandbox", spec.ID)
			return k
		}
		s.done.Go(k.discard)
	}
	return nil
}

// Close ends the prestarted kernels. Sandboxes keep running.
func (e *Engine) Close() error {
	e.balance.Stop()
	s := &e.spares
	s.mu.Lock()
	s.closed = true
	if s.refill != nil {
		s.refill.Stop()
	}
	stocks := s.stocks
	s.stocks = nil
	s.mu.Unlock()
	for _, st := range stocks {
		for _, k := range st.have {
			k.discard()
		}
	}
	s.done.Wait()
	return nil
}
