package lifecycle

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// putOffLeast and putOffMost bound how long the clock rests after a pause that
// failed.
const (
	putOffLeast = time.Second
	putOffMost  = time.Minute
)

// lateTimeout bounds how long Close waits for pauses by the clock.
const lateTimeout = 30 * time.Second

// awaitLate lets the pauses end that the clock has begun. Where no server runs
// they are begun by commands that take milliseconds: each would begin one, and
// none would ever be over.
func (s *Service) awaitLate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
	defer cancel()
	s.mu.RLock()
	late := slices.Collect(maps.Keys(s.late))
	s.mu.RUnlock()
	for _, over := range late {
		select {
		case <-over:
		case <-ctx.Done():
			return
		}
	}
}

// putOff is a pause that is tried again.
type putOff struct {
	tries int
	until time.Time
}

// pauseDue pauses a box whose time is up. What keeps it from being paused, such
// as a full disk, does not end it: its state would be lost.
func (s *Service) pauseDue(b *box) {
	p := s.postpone(b.id)
	// Close ends what is under way; the next process pauses it.
	ctx, r, release, err := s.actOn(s.ctx, b.id)
	if err == nil {
		err = s.pauseLate(ctx, r)
		release()
	}
	switch {
	case err == nil || s.ctx.Err() != nil || fault.CodeOf(err) == codeShuttingDown:
		s.mu.Lock()
		delete(s.put, b.id)
		s.mu.Unlock()
	case slices.Contains([]string{sandbox.CodeUnknown, sandbox.CodeNotRunning, sandbox.CodeRemoved, sandbox.CodeChanged}, fault.CodeOf(err)):
		// Another process has extended, paused or ended it.
		ctx, cancel := lasting(s.ctx)
		defer cancel()
		if err := s.locked(ctx, b.id, s.refresh); err != nil {
			s.log.Warn("sandbox not settled", "sandbox", b.id, "err", err)
		}
	default:
		s.log.Warn("sandbox not paused in time, and tried again", "sandbox", b.id, "tries", p.tries, "at", p.until, "err", err)
		if p.tries == 1 {
			s.note(s.ctx, b.id, "warn", "its time is up, and it cannot be paused: "+fault.PublicText(err), nil)
		}
	}
	s.notEnding(b)
}

// pauseLate pauses a sandbox whose time is up and was not extended. It ends the
// sandbox instead once pausing is so late that no client would still wait for it.
func (s *Service) pauseLate(ctx context.Context, r sandbox.Row) error {
	if r.State != sandbox.Running || r.EndAt.IsZero() || r.EndAt.After(time.Now()) {
		return s.refresh(ctx, r.ID)
	}
	_, err := s.pause(ctx, r, r.OnEnd.FilesOnly, time.Now())
	if fault.CodeOf(err) == codePrograms {
		// Its memory could not go on. Its files can.
		if _, err = s.pause(ctx, r, true, time.Now()); err == nil {
			s.note(ctx, r.ID, "warn", "paused without its memory: programs of the host have changed since it began", nil)
		}
	}
	if err == nil || time.Since(r.EndAt) < s.settings.Retention || s.ctx.Err() != nil {
		return err
	}
	s.log.Error("sandbox ended: it could not be paused", "sandbox", r.ID, "err", err)
	ctx, cancel := lasting(ctx)
	defer cancel()
	return s.endRun(ctx, r.ID, r.Run, sandbox.ReasonPauseFailed, time.Time{})
}

// postpone sets when the clock retries if a pause fails, each time later. It is
// called before the pause: a sandbox that keeps running after a failed pause gets a
// new box, for which the clock would retry at once.
func (s *Service) postpone(id string) putOff {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.put[id]
	p = putOff{tries: p.tries + 1, until: time.Now().Add(min(putOffLeast<<min(p.tries, 16), putOffMost))}
	s.put[id] = p
	if b := s.live[id]; b != nil {
		b.notBefore = p.until
	}
	return p
}

// checkOnEnd refuses what contradicts itself, and what this engine cannot do
// when the time has come.
func (s *Service) checkOnEnd(o sandbox.OnEnd, name string) error {
	switch {
	case !o.Pause && (o.FilesOnly || o.Wake):
		if o.FilesOnly {
			return fault.New(fault.Invalid, "on_end_invalid", "a pause without memory needs a pause at the end")
		}
		return nil // traffic also wakes what somebody has paused
	case o.FilesOnly && o.Wake:
		return fault.New(fault.Invalid, "on_end_invalid", "traffic cannot resume a sandbox that is paused without memory")
	case !o.Pause:
		return nil
	case s.images == nil:
		return noImages()
	}
	var err error
	if o.FilesOnly {
		_, err = s.engines.archiver(name)
	} else {
		_, err = s.engines.checkpointer(name)
	}
	return err
}
