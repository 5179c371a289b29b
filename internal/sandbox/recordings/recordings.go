// Package recordings owns the recordings of commands beyond the end of their sandbox: which callers
// may retain and read them, and how long they are kept.
package recordings

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/state/retained"
)

// Deps is what a Service needs.
type Deps struct {
	// Resolve finds the sandbox that a caller names and may see.
	Resolve func(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Row, error)
	Rows    Rows
	// Recordings holds the recordings. If it is nil, nothing is recorded.
	Recordings sandbox.Recordings
	// HasChanges reports whether changes of an ended sandbox are retained.
	HasChanges func(id string) bool
	Log        *slog.Logger
}

// Rows reads the rows of sandboxes.
type Rows interface {
	Get(ctx context.Context, id string) (sandbox.Row, error)
}

// Service is safe for concurrent use.
type Service struct{ deps Deps }

// New returns a Service.
func New(d Deps) *Service { return &Service{d} }

// maxRetained limits the number of sandboxes whose recordings are retained without retained
// changes. The size counts against the limit of all recordings.
const maxRetained = 100

// checkMayRetain refuses callers that must not retain recordings.
func (s *Service) checkMayRetain(caller sandbox.Principal) error {
	if err := caller.Check(); err != nil {
		return err
	}
	if !caller.Local {
		return fault.New(fault.Denied, "recordings_not_local", "only callers on the server's own machine retain recordings of ended sandboxes")
	}
	if s.deps.Recordings == nil {
		return fault.New(fault.Unsupported, "recordings_unavailable", "this server does not store recordings")
	}
	return nil
}

// Recorded returns the ID of a sandbox whose recordings a caller may read: an existing one, or an
// ended one with retained recordings.
func (s *Service) Recorded(ctx context.Context, caller sandbox.Principal, ref string) (string, error) {
	r, err := s.deps.Resolve(ctx, caller, ref)
	if err == nil || !isNotFound(err) || !caller.Local || s.deps.Recordings == nil || !ids.ValidSandbox(ref) {
		return r.ID, err
	}
	if _, ok := s.deps.Recordings.Retained(ref); !ok {
		return "", err
	}
	return ref, nil
}

// KeepRecordings retains the recordings of a sandbox beyond its end. The result is empty if there
// are none.
func (s *Service) KeepRecordings(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.KeptRecordings, error) {
	out, err := s.keepRecordings(ctx, caller, ref)
	if err != nil || out.ID == "" { // nothing was done
		return out, err
	}
	if err := auditlog.Commit(ctx); err != nil {
		return sandbox.KeptRecordings{}, errors.Join(err, s.deps.Recordings.Discard(out.ID))
	}
	return out, s.expire(ctx)
}

func (s *Service) keepRecordings(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.KeptRecordings, error) {
	if err := s.checkMayRetain(caller); err != nil {
		return sandbox.KeptRecordings{}, err
	}
	r, err := s.deps.Resolve(ctx, caller, ref)
	if err != nil {
		return sandbox.KeptRecordings{}, err
	}
	now := time.Now().UTC().Round(0)
	k := recording.Retained{Sandbox: r.ID, Workspace: r.Workspace, TakenAt: now, ExpiresAt: now.Add(retained.Life)}
	if found, err := s.deps.Recordings.Retain(k); err != nil || !found {
		return sandbox.KeptRecordings{}, err
	}
	return describe(k), nil
}

// describe returns the description of retained recordings for callers.
func describe(k recording.Retained) sandbox.KeptRecordings {
	return sandbox.KeptRecordings{ID: k.Sandbox, Workspace: k.Workspace, TakenAt: k.TakenAt, ExpiresAt: k.ExpiresAt}
}

// ListRecordings returns the retained recordings, newest first.
func (s *Service) ListRecordings(_ context.Context, caller sandbox.Principal) ([]sandbox.KeptRecordings, error) {
	if err := s.checkMayRetain(caller); err != nil {
		return nil, err
	}
	list, err := s.deps.Recordings.ListRetained()
	if err != nil {
		return nil, err
	}
	var out []sandbox.KeptRecordings
	for _, k := range list {
		if time.Now().Before(k.ExpiresAt) {
			out = append(out, describe(k))
		}
	}
	return out, nil
}

// DiscardRecordings removes the retained recordings of an ended sandbox.
func (s *Service) DiscardRecordings(ctx context.Context, caller sandbox.Principal, id string) error {
	if err := s.checkMayRetain(caller); err != nil {
		return err
	}
	if !ids.ValidSandbox(id) {
		return sandbox.Unknown(id)
	}
	if _, ok := s.deps.Recordings.Retained(id); !ok {
		return fault.Newf(fault.NotFound, "recordings_not_found", "there are no retained recordings of %.64q", id)
	}
	return s.Discard(ctx, id)
}

// Discard removes the retained recordings of an ended sandbox. Recordings of an existing sandbox
// stay as long as it does.
func (s *Service) Discard(ctx context.Context, id string) error {
	if s.deps.Recordings == nil {
		return nil
	}
	// This order ensures that a concurrent removal of the sandbox deletes its recordings too.
	if err := s.deps.Recordings.Discard(id); err != nil {
		return err
	}
	_, err := s.deps.Rows.Get(ctx, id)
	if isNotFound(err) {
		return s.deps.Recordings.Remove(id)
	}
	return err
}

// Drop removes the recordings of a sandbox whose row is being removed, unless they are retained.
func (s *Service) Drop(id string) error {
	if s.deps.Recordings == nil {
		return nil
	}
	if _, ok := s.deps.Recordings.Retained(id); ok {
		return s.deps.Recordings.Release(id)
	}
	return s.deps.Recordings.Remove(id)
}

// Close closes the recordings of a sandbox that has ended.
func (s *Service) Close(id string) {
	if s.deps.Recordings == nil {
		return
	}
	if err := s.deps.Recordings.Release(id); err != nil {
		s.deps.Log.Warn("recordings not closed", "sandbox", id, "err", err)
	}
}

// Sweep removes recordings of sandboxes without a row, unless they are retained.
func (s *Service) Sweep(ctx context.Context) error {
	if s.deps.Recordings == nil {
		return nil
	}
	err := sandbox.Sweep(s.deps.Recordings, func(id string) (bool, error) {
		_, err := s.deps.Rows.Get(ctx, id)
		if !isNotFound(err) {
			return true, err
		}
		// This is checked last, because recordings are retained before the row of a sandbox is
		// removed.
		_, isRetained := s.deps.Recordings.Retained(id)
		return isRetained, nil
	})
	return errors.Join(err, s.expire(ctx))
}

// expire removes expired recordings, and the oldest above the limit.
func (s *Service) expire(ctx context.Context) error {
	list, err := s.deps.Recordings.ListRetained()
	if err != nil {
		return err
	}
	n := 0
	for _, k := range list {
		if time.Now().Before(k.ExpiresAt) {
			if s.deps.HasChanges(k.Sandbox) {
				continue
			}
			if n++; n <= maxRetained {
				continue
			}
		}
		err = errors.Join(err, s.Discard(ctx, k.Sandbox))
	}
	return err
}

// DiscardAll removes all retained recordings.
func (s *Service) DiscardAll(ctx context.Context) error {
	if s.deps.Recordings == nil {
		return nil
	}
	list, err := s.deps.Recordings.ListRetained()
	for _, k := range list {
		err = errors.Join(err, s.Discard(ctx, k.Sandbox))
	}
	return err
}

func isNotFound(err error) bool { return fault.KindOf(err) == fault.NotFound }
