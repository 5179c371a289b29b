package ingest

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// batchDelay is how long to wait after a change for further lines, so that many lines of a busy
	// sandbox cost one write to the disk.
	batchDelay = 25 * time.Millisecond
	// retryPause is the pause after the audit log rejected an entry.
	retryPause = time.Second
)

// tail ingests the files of one sandbox.
type tail struct {
	s       *Ingester // owner
	sandbox string
	wake    chan struct{} // signals that the files may have grown
	ctx     context.Context
	stop    context.CancelFunc
	loop    sync.WaitGroup

	following bool // guarded by Ingester.mu

	mu    sync.Mutex // held while reading
	mark  mark
	files []*file
}

// notify makes the tail read its files again.
func (t *tail) notify() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// follow ingests lines as they are written, until the tail is closed.
func (t *tail) follow() {
	failing := false
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-t.wake:
		}
		pause := batchDelay
		if failing {
			pause = retryPause
		}
		select {
		case <-t.ctx.Done():
			return
		case <-time.After(pause):
		}
		err := t.take(t.ctx, false)
		if t.ctx.Err() != nil {
			return
		}
		if err != nil {
			if !failing {
				t.s.o.Log.Error("events of a sandbox are not in the audit log yet", "sandbox", t.sandbox, "err", err)
			}
			t.notify() // the files may not change again, so nothing else would wake the tail
		}
		failing = err != nil
	}
}

// take reads all files to their ends. An error in one file does not stop the others.
func (t *tail) take(ctx context.Context, last bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	unread := false
	for _, f := range t.files {
		grown, err := f.grown()
		if err != nil {
			return err
		}
		unread = unread || grown
	}
	if !unread {
		return nil
	}
	return t.locked(ctx, func() error {
		hide, err := t.s.o.Redact(ctx, t.sandbox)
		if err != nil {
			t.s.o.Log.Warn("the values to redact in a sandbox's events are not known: text that could contain them is omitted", "sandbox", t.sandbox, "err", err)
			hide = nil
		}
		var errs []error
		for _, f := range t.files {
			errs = append(errs, f.take(ctx, t.s.o.Audit, hide, last))
		}
		return errors.Join(errs...)
	})
}

// locked calls do while no other process reads these files. If another process has read them in the
// meantime, the positions are read from the audit log. The caller holds t.mu.
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
