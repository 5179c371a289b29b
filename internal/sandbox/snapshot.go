package sandbox

import (
	"context"

	"github.com/crannog/crannog/internal/fault"
)

// SnapshotUnknown is the error for a snapshot that does not exist or that the
// caller may not see. Both read the same, so that IDs cannot be probed.
func SnapshotUnknown(ref string) error {
	const most = 100
	if len(ref) > most {
		ref = ref[:most] + "…"
	}
	return fault.Newf(fault.NotFound, "snapshot_not_found", "Snapshot \"%s\" doesn't exist or you don't have access to it", ref)
}

// Snapshot takes one of a running sandbox.
func (s *Service) Snapshot(ctx context.Context, who Principal, ref string, req SnapshotRequest) (Snapshot, error) {
	if _, err := s.resolve(ctx, who, ref); err != nil {
		return Snapshot{}, err
	}
	_, err := s.checkpointer()
	return Snapshot{}, err
}

// Snapshots returns a page of the caller's snapshots; local callers see all.
func (s *Service) Snapshots(ctx context.Context, who Principal, f SnapshotFilter) (SnapshotPage, error) {
	return SnapshotPage{}, who.check()
}

// FindSnapshot finds one by ID or name.
func (s *Service) FindSnapshot(_ context.Context, _ Principal, ref string) (Snapshot, error) {
	return Snapshot{}, SnapshotUnknown(ref)
}

// RemoveSnapshot drops one.
func (s *Service) RemoveSnapshot(_ context.Context, _ Principal, ref string) error {
	return SnapshotUnknown(ref)
}
