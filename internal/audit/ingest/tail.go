package ingest

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// gather is how long a change waits for others, so that a busy sandbox
	// costs one write to the disk for many lines.
	gather = 25 * time.Millisecond
	// again is how long a record that refuses rests.
	again = time.Second
)

// tail takes in the files of one sandbox.
type tail struct {
	s       *Spools
	sandbox string
	wake    chan struct{}
	ctx     context.Context
	stop    context.CancelFunc
	loop    sync.WaitGroup

	following bool // guarded by Spools.mu

	mu    sync.Mutex // who holds it reads
	mark  mark
	files []*file
}

func (t *tail) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// follow takes in what is written until the tail is closed.
func (t *tail) follow() {
	failing := false
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.wake:
		}
		rest := gather
		if failing {
			rest = again
		}
		select {
		case <-t.ctx.Done():
			return
		case <-time.After(rest):
		}
		err := t.take(t.ctx, false)
		if t.ctx.Err() != nil {
			return
		}
		if err != nil {
			if !failing {
				t.s.o.Log.Error("what a sandbox does is not in the audit log yet", "sandbox", t.sandbox, "err", err)
			}
			t.rouse() // nothing may be written any more
		}
		failing = err != nil
	}
}

// take reads all files to their ends. What keeps one from being read does not
// keep the others.
func (t *tail) take(ctx context.Context, last bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	news := false
	for _, f := range t.files {
		grown, err := f.grown()
		if err != nil {
			return err
		}
		news = news || grown
	}
	if !news {
		return nil
	}
	return t.locked(ctx, func() error {
		hide, err := t.s.o.Hide(ctx, t.sandbox)
		if err != nil {
			t.s.o.Log.Warn("what to hide in a sandbox's lines is not known: they are kept without what could show it", "sandbox", t.sandbox, "err", err)
			hide = nil
		}
		var errs []error
		for _, f := range t.files {
			errs = append(errs, f.take(ctx, t.s.o.Record, hide, last))
		}
		return errors.Join(errs...)
	})
}

// locked does something while no other process reads these files. Where
// another has read them since, the record says how far. t.mu must be held.
func (t *tail) locked(ctx context.Context, do func() error) error {
	if err := t.mark.open(t.s.markPath(t.sandbox)); err != nil {
		return err
	}
	if err := t.mark.lock(ctx); err != nil {
		return err
	}
	defer t.mark.unlock()
	other, err := t.mark.take(t.s.nonce)
	if err != nil {
		return err
	}
	for _, f := range t.files {
		f.known = f.known && !other
	}
	return do()
}

func (t *tail) close() error {
	t.stop()
	t.loop.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	errs := []error{t.mark.close()}
	for _, f := range t.files {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}
