package lifecycle

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// snapshotID matches the IDs of snapshots, which names never match.
var snapshotID = pattern.New(`^[a-z0-9]+$`)

const snapshotIDLength = 20

// newSnapshotID returns an ID for a snapshot or image.
func newSnapshotID() string { return ids.New("s") }

func isSnapshotID(s string) bool { return len(s) == snapshotIDLength && snapshotID.MatchString(s) }

// checkSnapshotName accepts names that are valid template references, but not IDs.
func checkSnapshotName(name string) (string, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", nil
	}
	if len(name) > maxSnapshotName || !sandbox.IsIdentifier(name) || isSnapshotID(name) {
		return "", fault.Newf(fault.Invalid, "snapshot_name_invalid",
			"a snapshot's name is 1 to %d characters of a-z, 0-9, - and _, and does not look like an ID (%d of a-z and 0-9)", maxSnapshotName, snapshotIDLength)
	}
	return name, nil
}

const maxSnapshotName = 63

// checkNotTemplate rejects the name of an existing template: a sandbox would be made from the
// template, while E2B's request to remove a template would remove the snapshot.
func (pl *planner) checkNotTemplate(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	_, err := pl.templates.Resolve(ctx, sandbox.Reference{Name: name, Tag: sandbox.DefaultTag})
	if err == nil {
		return fault.Newf(fault.Exists, "snapshot_name_taken", "a template is named %q", name).WithHint("choose another name")
	}
	return ignoreUnknown(err)
}

// Snapshot takes a snapshot of a running sandbox.
func (s *Service) Snapshot(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	if err := s.starts.room.Check(); err != nil {
		return sandbox.Snapshot{}, err
	}
	name, err := checkSnapshotName(req.Name)
	if err == nil {
		err = s.planner.checkNotTemplate(ctx, name)
	}
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	ctx, r, release, err := s.lockForChange(ctx, caller, ref)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer release()
	if r.State != sandbox.Running {
		return sandbox.Snapshot{}, stateConflict(r)
	}
	save, format, err := s.states.Saver(ctx, r, req.FilesOnly)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	n := sandbox.Stored{
		Snapshot: sandbox.Snapshot{
			ID: newSnapshotID(), Name: name, Owner: r.Owner, Sandbox: r.ID, Parent: r.At, TemplateID: r.TemplateID, Template: r.Template,
			FilesOnly: req.FilesOnly, CreatedAt: time.Now().UTC().Round(0), Format: format, Engine: r.Engine,
		},
		Base: r.Base, Limits: r.Limits, Workspace: r.Workspace, Access: r.Access, Process: s.process.self, KeptFor: req.KeptFor,
	}
	n.Access.Values, n.Access.Own = nil, "" // values belong to the sandbox alone
	if err := s.takeSnapshot(ctx, r, &n, save); err != nil {
		s.log.Warn("snapshot not taken", "sandbox", r.ID, "err", err)
		return sandbox.Snapshot{}, err
	}
	s.live.update(r.ID, func(r *sandbox.Row) { r.At = n.ID })
	s.log.InfoContext(ctx, "snapshot taken", "sandbox", r.ID, "snapshot", n.ID, "bytes", n.Bytes, "took", time.Since(n.CreatedAt))
	s.note(ctx, r.ID, "info", "snapshot taken", map[string]string{"snapshot": n.ID, "name": n.Name})
	s.states.RequestDeduplication()
	n.OwnBytes = n.Bytes // until another one shares its data
	return n.Snapshot, nil
}

// takeSnapshot executes the steps that leave data behind.
func (s *Service) takeSnapshot(ctx context.Context, r sandbox.Row, n *sandbox.Stored, save savedstate.Saver) (err error) {
	draft, err := s.states.Begin(ctx, n.ID)
	if err != nil {
		return err
	}
	// The row names the image before the image exists, so that after a crash at any time it has an
	// owner.
	if err := s.store.InsertSnapshot(ctx, *n); err != nil {
		return errors.Join(err, draft.Abort())
	}
	defer func() {
		if err != nil {
			ctx, cancel := withoutCaller(ctx)
			defer cancel()
			err = errors.Join(err, draft.Abort(), s.states.Remove(ctx, n.ID), s.store.DeleteSnapshot(ctx, n.ID))
		}
	}()
	if n.Base.Needs, err = s.states.Save(ctx, r, draft, save); err != nil {
		return err
	}
	image, err := draft.Commit(ctx, r.At)
	if err != nil {
		return savedstate.DiskFull(err)
	}
	n.Sum, n.Bytes, n.Needs = image.Sum, image.Bytes, n.Base.Needs
	if err := s.audit.Append(ctx, auditlog.Entry(ctx, audit.SnapshotTaken, r.ID, snapshotPayload(*n))); err != nil {
		return err
	}
	return s.store.KeepSnapshot(ctx, n.ID, n.Sum, n.Bytes, n.Base.Needs)
}

func snapshotPayload(n sandbox.Stored) payload.Snapshot {
	return payload.Snapshot{ID: n.ID, Name: n.Name, FilesOnly: n.FilesOnly, Sum: n.Sum, Bytes: n.Bytes}
}
