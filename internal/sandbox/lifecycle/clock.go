package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// expireRetry is how long the clock rests when the end of a sandbox could not
// be recorded.
const expireRetry = time.Second

// rouse lets the clock look again.
func (s *Service) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// clock ends sandboxes when their time is up.
func (s *Service) clock() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.expireDue(time.Now())
		if next := s.nextEnd(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// nextEnd is the earliest end of all boxes that are not ending; zero is none.
func (s *Service) nextEnd() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var next time.Time
	for _, b := range s.live {
		end := b.due()
		if b.ending || end.IsZero() {
			continue
		}
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next
}

// due is when the clock has something to do about a box; zero is never.
func (b *box) due() time.Time {
	end := b.record.EndAt
	if !end.IsZero() && b.notBefore.After(end) {
		return b.notBefore
	}
	return end
}

func (s *Service) expireDue(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.live {
		if end := b.due(); !b.ending && !end.IsZero() && !end.After(now) {
			b.ending = true
			if b.record.OnEnd.Pause {
				over := make(chan struct{})
				s.late[over] = true
				s.loops.Go(func() {
					s.pauseDue(b)
					s.mu.Lock()
					delete(s.late, over)
					s.mu.Unlock()
					close(over)
				})
				continue
			}
			s.loops.Go(func() { s.expire(b) })
		}
	}
}

// expire ends a box whose time is up according to what this Service knows.
// The row decides: another process may have extended it.
func (s *Service) expire(b *box) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), undoTimeout)
	defer cancel()
	err := s.expireLocked(ctx, b)
	if err == nil {
		return
	}
	s.log.Error("sandbox not ended in time", "sandbox", b.id, "err", err)
	select {
	case <-s.ctx.Done():
	case <-time.After(expireRetry):
	}
	s.notEnding(b)
}

func (s *Service) expireLocked(ctx context.Context, b *box) error {
	unlock, err := s.locks.acquire(ctx, b.id)
	if err != nil {
		return err
	}
	defer unlock()
	began, err := s.store.Move(ctx, b.id, sandbox.Move{
		From: []sandbox.State{sandbox.Running}, To: sandbox.Stopping, Reason: sandbox.ReasonTimeout, EndedBy: time.Now(),
	})
	if err != nil {
		return err
	}
	if began {
		return s.finish(ctx, b.id, time.Time{})
	}
	return s.refresh(ctx, b.id)
}

// notEnding gives a box back to the clock.
func (s *Service) notEnding(b *box) {
	s.mu.Lock()
	b.ending = false
	s.mu.Unlock()
	s.rouse()
}

// refresh takes over what another process changed in a row. The lock of the
// ID must be held.
func (s *Service) refresh(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if isUnknown(err) || err == nil && r.State != sandbox.Running && r.State != sandbox.Waiting {
		s.cut(id)
		return s.intake.Leave(id) // another process sees to its end
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	b := s.live[id]
	another := b != nil && r.State == sandbox.Running && b.record.Run != r.Run
	if b != nil {
		b.record.EndAt, b.ending = r.EndAt, false
	}
	s.mu.Unlock()
	if another {
		// Another process has given it another machine: streams into the old
		// one end, and its end is no news.
		s.cut(id)
		s.track(r)
	}
	s.rouse()
	return nil
}
