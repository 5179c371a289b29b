package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/state/retained"
)

var _ sandbox.Recorded = (*Service)(nil)

// mostRecorded is how many sandboxes' recordings outlive them, beside those of
// which changes are kept too. How much of the disk they take is bounded with
// that of all recordings.
const mostRecorded = 100

// mayRecord is mayKeep for recordings.
func (s *Service) mayRecord(who sandbox.Principal) error {
	if err := who.Check(); err != nil {
		return err
	}
	if !who.Local {
		return fault.New(fault.Denied, "recordings_not_local", "only callers on the server's own machine keep recordings of ended sandboxes")
	}
	if s.tapes == nil {
		return fault.New(fault.Unsupported, "recordings_unavailable", "this service keeps no recordings")
	}
	return nil
}

// Recorded implements Recorded.
func (s *Service) Recorded(ctx context.Context, who sandbox.Principal, ref string) (string, error) {
	r, err := s.resolve(ctx, who, ref)
	if err == nil || !isUnknown(err) || !who.Local || s.tapes == nil || !idPattern.MatchString(ref) {
		return r.ID, err
	}
	if _, ok := s.tapes.Kept(ref); !ok {
		return "", err
	}
	return ref, nil
}

// KeepRecordings implements Recorded.
func (s *Service) KeepRecordings(ctx context.Context, who sandbox.Principal, ref string) (sandbox.KeptRecordings, error) {
	out, err := s.keepRecordings(ctx, who, ref)
	if err != nil || out.ID == "" { // nothing was done
		return out, err
	}
	if err := auditlog.Commit(ctx); err != nil {
		return sandbox.KeptRecordings{}, errors.Join(err, s.tapes.Let(out.ID))
	}
	return out, s.sweepRecordings(ctx)
}

func (s *Service) keepRecordings(ctx context.Context, who sandbox.Principal, ref string) (sandbox.KeptRecordings, error) {
	if err := s.mayRecord(who); err != nil {
		return sandbox.KeptRecordings{}, err
	}
	r, err := s.resolve(ctx, who, ref)
	if err != nil {
		return sandbox.KeptRecordings{}, err
	}
	now := time.Now().UTC().Round(0)
	k := recording.Kept{Sandbox: r.ID, Workspace: r.Workspace, TakenAt: now, ExpiresAt: now.Add(retained.Life)}
	if any, err := s.tapes.Keep(k); err != nil || !any {
		return sandbox.KeptRecordings{}, err
	}
	return toKeptRecordings(k), nil
}

func toKeptRecordings(k recording.Kept) sandbox.KeptRecordings {
	return sandbox.KeptRecordings{ID: k.Sandbox, Workspace: k.Workspace, TakenAt: k.TakenAt, ExpiresAt: k.ExpiresAt}
}

// ListRecordings implements Recorded.
func (s *Service) ListRecordings(_ context.Context, who sandbox.Principal) ([]sandbox.KeptRecordings, error) {
	if err := s.mayRecord(who); err != nil {
		return nil, err
	}
	list, err := s.tapes.ListKept()
	if err != nil {
		return nil, err
	}
	var out []sandbox.KeptRecordings
	for _, k := range list {
		if time.Now().Before(k.ExpiresAt) {
			out = append(out, toKeptRecordings(k))
		}
	}
	return out, nil
}

// DiscardRecordings implements Recorded.
func (s *Service) DiscardRecordings(ctx context.Context, who sandbox.Principal, id string) error {
	if err := s.mayRecord(who); err != nil {
		return err
	}
	if !idPattern.MatchString(id) {
		return sandbox.Unknown(id)
	}
	if _, ok := s.tapes.Kept(id); !ok {
		return fault.Newf(fault.NotFound, "recordings_not_found", "no recordings were kept of %.64q", id)
	}
	return s.letRecording(ctx, id)
}

// letRecording drops what was kept of an ended sandbox. Those of one that is
// there stay as long as it.
func (s *Service) letRecording(ctx context.Context, id string) error {
	if s.tapes == nil {
		return nil
	}
	// In this order, so that deleting the sandbox at the same time deletes its recordings too.
	if err := s.tapes.Let(id); err != nil {
		return err
	}
	_, err := s.store.Get(ctx, id)
	if isUnknown(err) {
		return s.tapes.Remove(id)
	}
	return err
}

// dropRecording removes what the commands of a sandbox printed that is being
// forgotten, unless it is kept.
func (s *Service) dropRecording(id string) error {
	if s.tapes == nil {
		return nil
	}
	if _, ok := s.tapes.Kept(id); ok {
		return s.tapes.Release(id)
	}
	return s.tapes.Remove(id)
}

// restRecording lets go of the recordings of a sandbox that has ended.
func (s *Service) restRecording(id string) {
	if s.tapes == nil {
		return
	}
	if err := s.tapes.Release(id); err != nil {
		s.log.Warn("recordings not closed", "sandbox", id, "err", err)
	}
}

// dropRecordings removes those of sandboxes that nothing else remembers.
func (s *Service) dropRecordings(ctx context.Context) error {
	if s.tapes == nil {
		return nil
	}
	err := s.sweep(s.tapes, func(id string) (bool, error) {
		_, err := s.store.Get(ctx, id)
		if !isUnknown(err) {
			return true, err
		}
		// Asked last: who forgets a sandbox has said before that they stay.
		_, stays := s.tapes.Kept(id)
		return stays, nil
	})
	return errors.Join(err, s.sweepRecordings(ctx))
}

// sweepRecordings drops what has been kept for long enough, and the oldest of
// what is too much.
func (s *Service) sweepRecordings(ctx context.Context) error {
	list, err := s.tapes.ListKept()
	if err != nil {
		return err
	}
	n := 0
	for _, k := range list {
		if time.Now().Before(k.ExpiresAt) {
			if s.kept != nil && s.kept.Has(k.Sandbox) {
				continue
			}
			if n++; n <= mostRecorded {
				continue
			}
		}
		err = errors.Join(err, s.letRecording(ctx, k.Sandbox))
	}
	return err
}

// forgetRecordings drops all that was kept.
func (s *Service) forgetRecordings(ctx context.Context) error {
	if s.tapes == nil {
		return nil
	}
	list, err := s.tapes.ListKept()
	for _, k := range list {
		err = errors.Join(err, s.letRecording(ctx, k.Sandbox))
	}
	return err
}

// Survey lets the engine write down what became of a sandbox's files, for
// those who know that something has ended in it which is no process.
func (s *Service) Survey(ctx context.Context, id string) error {
	if _, ok := s.Live(id); !ok {
		return sandbox.Unknown(id)
	}
	s.survey(ctx, id)
	return nil
}
