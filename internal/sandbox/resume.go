package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
)

// wakeLife is the shortest time that traffic wakes a sandbox for.
const wakeLife = 5 * time.Minute

// Resume lets a paused sandbox go on for d.
func (s *Service) Resume(ctx context.Context, who Principal, ref string, d time.Duration) (Sandbox, bool, error) {
	ctx, deed := s.deed(ctx, who, "resume", ref)
	sb, was, err := s.resume(ctx, who, ref, d, false)
	return sb, was, deed.told(ctx, err)
}

// ResumeFiles boots a paused sandbox anew, with its files.
func (s *Service) ResumeFiles(ctx context.Context, who Principal, ref string, d time.Duration) (Sandbox, bool, error) {
	ctx, deed := s.deed(ctx, who, "resume", ref)
	sb, was, err := s.resume(ctx, who, ref, d, true)
	return sb, was, deed.told(ctx, err)
}

func (s *Service) resume(ctx context.Context, who Principal, ref string, d time.Duration, filesOnly bool) (Sandbox, bool, error) {
	if d < 0 {
		return Sandbox{}, false, fault.New(fault.Invalid, "timeout_invalid", "Timeout must not be negative")
	}
	if err := s.checkTimeout(who, d); err != nil {
		return Sandbox{}, false, err
	}
	if err := s.room.Check(); err != nil {
		return Sandbox{}, false, err
	}
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return Sandbox{}, false, err
	}
	return s.goOn(ctx, r.ID, d, filesOnly, func(Record) error { return nil })
}

// Wake resumes a paused sandbox that resumes on traffic.
func (s *Service) Wake(ctx context.Context, id string) (Sandbox, error) {
	if !idPattern.MatchString(id) {
		return Sandbox{}, Unknown(id)
	}
	if sb, ok := s.known(id); ok {
		return sb, nil
	}
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return Sandbox{}, err
	}
	d := max(r.CreateTimeout, wakeLife)
	if r.CreateTimeout == 0 {
		d = 0 // for ever
	}
	sb, _, err := s.goOn(ctx, id, d, false, func(r Record) error {
		if r.State == Paused && r.OnEnd.Wake {
			return nil
		}
		return Unknown(id)
	})
	return sb, err
}

// goOn resumes a sandbox, or finds that it runs, and reports whether it was
// paused. may has the last word about one that does not run.
func (s *Service) goOn(ctx context.Context, id string, d time.Duration, filesOnly bool, may func(Record) error) (Sandbox, bool, error) {
	began := time.Now()
	ctx, r, release, err := s.actOn(ctx, id)
	if err != nil {
		return Sandbox{}, false, err
	}
	defer release()
	if r.State == Running {
		r, err = s.later(ctx, r, d)
		return r.shown(), false, err
	}
	if err := may(r); err != nil {
		return Sandbox{}, false, err
	}
	if r.State != Paused {
		return Sandbox{}, false, notNow(r)
	}
	from := source{saved: r.Saved, renew: guest.Resumed, files: filesOnly, again: true}
	if filesOnly {
		// How it went says nothing about those who want the memory.
		r, err = s.awaken(ctx, r, r.endIn(d), from, nil)
		return r.shown(), true, err
	}
	// Who waited while another tried shares what came of it: a sandbox that
	// does not come back is not tried once per waiting request.
	if err := s.failedSince(id, began); err != nil {
		return Sandbox{}, true, err
	}
	r, err = s.awaken(ctx, r, r.endIn(d), from, nil)
	s.remember(id, err)
	return r.shown(), true, err
}

// later gives a running sandbox a later end, if that is one.
func (s *Service) later(ctx context.Context, r Record, d time.Duration) (Record, error) {
	if end := r.endIn(d); !end.IsZero() {
		changed, err := s.store.SetEnd(ctx, r.ID, end, true)
		if err != nil {
			return Record{}, err
		}
		if changed {
			r.EndAt = end
			s.ends(r)
			s.tell(ctx, r)
		}
	}
	s.track(r)
	return r, nil
}

// failure is how the latest try to resume a sandbox went.
type failure struct {
	at  time.Time
	err error
}

func (s *Service) failedSince(id string, began time.Time) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if f := s.failures[id]; f.err != nil && f.at.After(began) {
		return f.err
	}
	return nil
}

func (s *Service) remember(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.failures, id)
	// Who went away tells nothing about the others.
	if err != nil && fault.KindOf(err) != fault.Canceled {
		s.failures[id] = failure{time.Now(), err}
	}
}

// slowStart is how long a resumption may take of the time that it is for.
const slowStart = time.Second

// awaken takes a paused sandbox to running, from its own image or from
// another source. After an error it is paused as before. The caller acts on
// it.
func (s *Service) awaken(ctx context.Context, r Record, end time.Time, from source, at *string) (_ Record, err error) {
	began := time.Now()
	others := false             // programs of the host are others
	if from.saved.Image != "" { // its start has no memory that could not go on
		err := s.fits(ctx, r.TemplateID, r.Base, from.saved)
		// Nothing runs while files are taken out.
		if others = from.files && fault.CodeOf(err) == codePrograms; err != nil && !others {
			return Record{}, err
		}
	}
	done, err := s.admit(ctx, r, from.request, false)
	if err != nil {
		return Record{}, err
	}
	defer func() { done(err) }()
	moved, err := s.move(ctx, r.ID, Move{
		From: []State{Paused}, To: Resuming, By: s.self, Run: r.Run, Next: true, MaxLive: s.settings.MaxLive,
	})
	if err != nil || !moved {
		return Record{}, errors.Join(err, s.stale(ctx, r.ID, moved, err))
	}
	paused := r
	r.Run, r.EndAt, r.PausedAt = r.Run+1, end, time.Time{}
	err = s.stopMachine(ctx, r) // of a pause that could not
	if err == nil {
		err = s.restart(ctx, &r, from)
	}
	if err != nil && others && fault.KindOf(err) == fault.Internal {
		err = fault.Wrap(err, fault.Conflict, codePrograms, "the files do not come out: programs of the host that the sandbox had open have changed since, and one of them is gone").
			WithHint("put the same packages back, and try again; the server's log names the file")
	}
	if took := time.Since(began); took > slowStart && !end.IsZero() {
		r.EndAt = end.Add(took) // who resumes it for a while is to have it for that
	}
	if err == nil {
		// Nothing of it has reached anybody yet, so it can be taken back.
		err = s.book.must(ctx, s.wentOn(ctx, r, at, from))
	}
	if err != nil {
		return Record{}, s.pauseAgain(ctx, paused, err)
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	image, kept := r.Saved.Image, !from.files && !r.Saved.FilesOnly
	r.Saved = Saved{}
	moved, err = s.move(ctx, r.ID, Move{From: []State{Resuming}, To: Running, Change: &Change{
		Saved: &r.Saved, PausedAt: &r.PausedAt, EndAt: &r.EndAt, At: at, Checked: r.Checked, Base: &r.Base,
	}})
	if err != nil {
		return Record{}, errors.Join(err, s.stopMachine(ctx, r)) // the attendant continues
	}
	if !moved {
		s.cut(r.ID)
		return Record{}, errors.Join(removedMeanwhile(), s.stopMachine(ctx, r))
	}
	r.State = Running
	if at != nil {
		r.At = *at
	}
	s.track(r)
	if !r.EndAt.Equal(end) {
		s.tell(ctx, r)
	}
	if err := s.images.Remove(ctx, image); err != nil {
		s.log.Warn("image of a resumed sandbox not removed", "sandbox", r.ID, "err", err)
	}
	s.log.Info("sandbox resumed", "sandbox", r.ID, "owner", r.Owner, "took", time.Since(began))
	said := "sandbox resumed"
	if !kept {
		said = "sandbox booted anew with its files"
	}
	s.note(ctx, r.ID, "info", said, map[string]string{"took": time.Since(began).Round(time.Millisecond).String()})
	return r, nil
}

// wentOn returns the audit entry of a sandbox that continues, either from where it
// was or from a snapshot.
func (s *Service) wentOn(ctx context.Context, r Record, at *string, from source) audit.Draft {
	if at != nil {
		return entry(ctx, audit.SandboxReplaced, r.ID, payload.Replaced{Run: r.Run, Snapshot: *at})
	}
	return entry(ctx, audit.SandboxResumed, r.ID, payload.Resumed{Run: r.Run, EndAt: stamp(r.EndAt), FilesOnly: from.files || from.saved.FilesOnly})
}

// restart boots a machine of a sandbox that had one before.
func (s *Service) restart(ctx context.Context, r *Record, from source) error {
	p, err := s.compile(r.Access)
	if err != nil {
		return err
	}
	if !from.memory() {
		// It can go on later as long as these programs are there.
		was := r.Base.Root
		from.root = &was
		if r.Base, err = s.anew(ctx, r.TemplateID, r.Base); err != nil {
			return err
		}
	}
	spec, config := s.machine(r, p)
	if err := s.boot(ctx, *r, p, spec, config, from); err != nil {
		return fmt.Errorf("restart %s: %w", r.ID, err)
	}
	return nil
}

// pauseAgain undoes a resumption that failed. The image is as it was.
func (s *Service) pauseAgain(ctx context.Context, r Record, cause error) error {
	if because := context.Cause(ctx); because != nil {
		cause = errors.Join(canceled(because), cause)
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	s.log.Warn("sandbox not resumed", "sandbox", r.ID, "err", cause)
	s.cut(r.ID)
	if err := s.stopMachine(ctx, r); err != nil {
		s.mu.Lock()
		s.unwritten[r.ID] = true // the attendant tries again
		s.mu.Unlock()
		return errors.Join(cause, err)
	}
	_, err := s.move(ctx, r.ID, Move{From: []State{Resuming}, To: Paused})
	return errors.Join(cause, err)
}
