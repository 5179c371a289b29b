package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
)

// codeReplaceFailed is the engine's word for having neither machine.
const codeReplaceFailed = "replace_failed"

// Rollback puts a sandbox back to a snapshot.
func (s *Service) Rollback(ctx context.Context, who Principal, ref, snapshot string) (Sandbox, error) {
	ctx, d := s.deed(ctx, who, "rollback", ref)
	n, err := s.seenSnapshot(ctx, who, snapshot)
	if err != nil {
		return Sandbox{}, d.told(ctx, err)
	}
	sb, err := s.putBack(ctx, who, ref, func(Record) string { return n.ID })
	return sb, d.told(ctx, err)
}

// Reset puts a sandbox back to its start.
func (s *Service) Reset(ctx context.Context, who Principal, ref string) (Sandbox, error) {
	ctx, d := s.deed(ctx, who, "reset", ref)
	sb, err := s.putBack(ctx, who, ref, func(r Record) string {
		if r.Origin != "" {
			return r.Origin
		}
		return toStart
	})
	return sb, d.told(ctx, err)
}

func (s *Service) putBack(ctx context.Context, who Principal, ref string, to func(Record) string) (Sandbox, error) {
	ctx, r, release, err := s.act(ctx, who, ref)
	if err != nil {
		return Sandbox{}, err
	}
	defer release()
	if r.State != Running && r.State != Paused {
		return Sandbox{}, notNow(r)
	}
	if err := r.Base.known(); err != nil {
		return Sandbox{}, err
	}
	if _, err := s.checkpointer(); err != nil {
		return Sandbox{}, err // before anything is cut
	}
	target := to(r)
	from, at, err := s.backTo(ctx, r, target)
	if err != nil {
		return Sandbox{}, err
	}
	if from.saved.Image != "" {
		if err := s.fits(ctx, r.TemplateID, r.Base, from.saved); err != nil {
			return Sandbox{}, err
		}
	}
	if r.State == Paused {
		r, err = s.awaken(ctx, r, r.endIn(0), from, &at)
	} else {
		r, err = s.replace(ctx, r, target, from, at)
	}
	return r.shown(), err
}

// backTo is what a sandbox starts from that is put back: toStart or a
// snapshot, which must be of its own kind.
func (s *Service) backTo(ctx context.Context, r Record, target string) (source, string, error) {
	if target == toStart {
		return source{again: true}, "", nil
	}
	n, err := s.store.GetSnapshot(ctx, target)
	if err == nil && n.Sum == "" {
		err = SnapshotUnknown(target)
	}
	if isUnknown(err) && target == r.Origin {
		return source{}, "", fault.New(fault.Conflict, "origin_gone", "the snapshot that the sandbox was made of does not exist any more").
			WithHint("roll it back to another snapshot, or make a new sandbox")
	}
	if err != nil {
		return source{}, "", err
	}
	renew := guest.RolledBack
	if n.Sandbox != r.ID {
		// Its names are another's, who may be alive and go by them.
		renew = guest.Copied
	}
	return n.from(renew), n.ID, n.fitsIn(r)
}

// fitsIn refuses a snapshot of another kind of machine.
func (n Stored) fitsIn(r Record) error {
	why := ""
	switch {
	case n.TemplateID != r.TemplateID:
		why = "it is of another template"
	case n.FilesOnly:
		return nil
	case !n.Base.sameRoot(r.Base) || n.Workspace != r.Workspace || n.Base.Needs == nil && n.Base.Revision != r.Base.Revision:
		why = "its files or programs are others"
	default:
		why = r.Base.otherwise(n.Base)
		have, saved := n.Limits, r.Limits
		taken := have.fields()
		for i, f := range saved.fields() {
			if fixed(f.limit) && *f.value != *taken[i].value {
				why = "its limit of " + f.name + " is another"
			}
		}
	}
	if why == "" {
		return nil
	}
	return fault.Newf(fault.Invalid, "snapshot_other_machine", "the sandbox cannot be put back to snapshot %s: %s", n.ID, why).
		WithHint("make a new sandbox of it: crannog run --from " + n.ID)
}

// replace exchanges the instance of a running sandbox. The caller holds the sandbox's
// lock.
func (s *Service) replace(ctx context.Context, r Record, target string, from source, at string) (_ Record, err error) {
	done, err := s.admit(ctx, r, from.request, false)
	if err != nil {
		return Record{}, err
	}
	defer func() { done(err) }()
	old := r
	moved, err := s.move(ctx, r.ID, Move{
		From: []State{Running}, To: Resuming, By: s.self, Run: r.Run, Next: true, Change: &Change{Pending: &target},
	})
	if err != nil || !moved {
		return Record{}, errors.Join(err, s.stale(ctx, r.ID, moved, err))
	}
	r.Run++
	from.replace = true
	s.survey(ctx, r.ID)
	s.cut(r.ID)
	if err := s.restart(ctx, &r, from); err != nil {
		return Record{}, s.notReplaced(ctx, old, err)
	}
	return s.replaced(ctx, r, at)
}

// replaced makes a sandbox's new machine its machine.
func (s *Service) replaced(ctx context.Context, r Record, at string) (Record, error) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	none := ""
	s.book.anyway(ctx, s.wentOn(ctx, r, &at, source{}))
	moved, err := s.move(ctx, r.ID, Move{From: []State{Resuming}, To: Running, Change: &Change{
		Pending: &none, At: &at, Checked: r.Checked, Base: &r.Base,
	}})
	if err != nil {
		return Record{}, err // the attendant continues
	}
	if !moved {
		s.cut(r.ID)
		return Record{}, errors.Join(removedMeanwhile(), s.stopMachine(ctx, r))
	}
	r.State, r.At, r.Pending = Running, at, ""
	s.track(r)
	s.endQuestions(ctx, r.ID, "", "the sandbox was put back")
	s.log.Info("sandbox put back", "sandbox", r.ID, "owner", r.Owner, "snapshot", at)
	s.note(ctx, r.ID, "info", "sandbox put back", map[string]string{"snapshot": at})
	return r, nil
}

// notReplaced translates a failed replacement, by what became of the old instance.
func (s *Service) notReplaced(ctx context.Context, r Record, cause error) error {
	if because := context.Cause(ctx); because != nil {
		cause = errors.Join(canceled(because), cause)
	}
	ctx, cancel := lasting(ctx)
	defer cancel()
	s.log.Warn("sandbox not put back", "sandbox", r.ID, "err", cause)
	runs, err := s.runs(ctx, r.ID)
	if err != nil {
		return errors.Join(cause, err, s.owe(r.ID))
	}
	if !runs || isReplaceFailed(cause) {
		_, err := s.end(ctx, r.ID, ReasonCrashed, time.Time{})
		return errors.Join(fault.Wrap(cause, fault.KindOf(cause), codeReplaceFailed,
			"the sandbox could not be put back, and is stopped: "+fault.PublicText(cause)).WithHint("its snapshots are as they were"), err)
	}
	none := ""
	moved, err := s.move(ctx, r.ID, Move{From: []State{Resuming}, To: Running, Next: true, Change: &Change{Pending: &none}})
	if err != nil || !moved {
		return errors.Join(cause, err)
	}
	// The old instance continues. Its network attachment may have been cut for the
	// new one's.
	if row, err := s.store.Get(ctx, r.ID); err == nil {
		s.track(row)
	}
	if err := s.relink(ctx); err != nil {
		s.log.Warn("link not looked at", "sandbox", r.ID, "err", err)
	}
	s.note(ctx, r.ID, "warn", "not put back: "+fault.PublicText(cause), nil)
	return cause
}

// owe leaves a sandbox in a passing state to the attendant.
func (s *Service) owe(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwritten[id] = true
	return nil
}

func isReplaceFailed(err error) bool { return fault.CodeOf(err) == codeReplaceFailed }
