package lifecycle

import (
	"context"
	"strings"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// snapshotFinder finds the snapshots that a caller names.
type snapshotFinder struct{ rows sandbox.SnapshotRows }

// find returns the snapshot with an ID or name. A local caller's own has precedence over a key's
// with the same name.
func (f snapshotFinder) find(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Stored, error) {
	if isSnapshotID(ref) {
		n, err := f.rows.GetSnapshot(ctx, ref)
		if err == nil && !caller.MayUse(n) {
			err = sandbox.SnapshotUnknown(ref)
		}
		return n, err
	}
	if !sandbox.IsIdentifier(ref) || len(ref) > maxSnapshotName {
		return sandbox.Stored{}, sandbox.SnapshotUnknown(ref)
	}
	q := sandbox.SnapshotQuery{SnapshotFilter: sandbox.SnapshotFilter{Name: ref}, Owner: caller.KeyID, AllOwners: caller.Local}
	found, err := f.rows.ListSnapshots(ctx, q)
	if err != nil {
		return sandbox.Stored{}, err
	}
	for _, n := range found {
		if n.Owner == caller.KeyID {
			return n, nil
		}
	}
	switch len(found) {
	case 0:
		return sandbox.Stored{}, sandbox.SnapshotUnknown(ref)
	case 1:
		return found[0], nil
	}
	return sandbox.Stored{}, fault.Newf(fault.Conflict, "snapshot_ambiguous", "%q means more than one snapshot", ref).
		WithHint("name it by its ID")
}

// findNamed is find for any text of a caller, also for a template reference.
func (f snapshotFinder) findNamed(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Stored, error) {
	if err := caller.Check(); err != nil {
		return sandbox.Stored{}, err
	}
	parsed, err := sandbox.ParseReference(ref)
	if err != nil || parsed.Namespace != "" || parsed.Tag != sandbox.DefaultTag {
		return sandbox.Stored{}, sandbox.SnapshotUnknown(ref)
	}
	return f.find(ctx, caller, parsed.Name)
}

// FindSnapshot returns the snapshot with an ID or name.
func (s *Service) FindSnapshot(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Snapshot, error) {
	n, err := s.planner.snapshots.findNamed(ctx, caller, ref)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	page, err := s.states.Sized(ctx, []sandbox.Stored{n})
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	return page[0], nil
}

// Snapshots returns a page of the caller's snapshots; local callers see all.
func (s *Service) Snapshots(ctx context.Context, caller sandbox.Principal, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	if err := caller.Check(); err != nil {
		return sandbox.SnapshotPage{}, err
	}
	if f.Limit < 0 || f.Limit > maxPage {
		return sandbox.SnapshotPage{}, fault.Newf(fault.Invalid, "limit_invalid", "limit is %d, and must be from 1 to %d", f.Limit, maxPage)
	}
	if f.Limit == 0 {
		f.Limit = maxPage
	}
	f.Name = strings.ToLower(strings.TrimSpace(f.Name))
	q := sandbox.SnapshotQuery{SnapshotFilter: f, Owner: caller.KeyID, AllOwners: caller.Local}
	// One row more than the page holds shows whether there is another page.
	q.Limit++
	rows, err := s.store.ListSnapshots(ctx, q)
	if err != nil {
		return sandbox.SnapshotPage{}, err
	}
	page := sandbox.SnapshotPage{More: len(rows) > f.Limit}
	if page.More {
		rows = rows[:f.Limit]
	}
	page.Snapshots, err = s.states.Sized(ctx, rows)
	return page, err
}

// RemoveSnapshot removes a snapshot. The row goes first: data without a row is found and removed
// later, while a row without data would be a snapshot that cannot be used.
func (s *Service) RemoveSnapshot(ctx context.Context, caller sandbox.Principal, ref string) error {
	n, err := s.planner.snapshots.findNamed(ctx, caller, ref)
	if err != nil {
		return err
	}
	auditlog.About(ctx, n.Sandbox)
	return s.removeSnapshot(ctx, n)
}

func (s *Service) removeSnapshot(ctx context.Context, n sandbox.Stored) error {
	ctx, cancel := withoutCaller(ctx)
	defer cancel()
	if err := s.audit.Append(ctx, auditlog.Entry(ctx, audit.SnapshotRemoved, n.Sandbox, snapshotPayload(n))); err != nil {
		return err
	}
	if err := s.store.DeleteSnapshot(ctx, n.ID); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "snapshot removed", "snapshot", n.ID, "owner", n.Owner)
	if s.states.Available() != nil {
		return nil
	}
	if err := s.states.Remove(ctx, n.ID); err != nil {
		return err
	}
	return s.data.workspaces.DropCopyOf(ctx, n.Base.Copy)
}
