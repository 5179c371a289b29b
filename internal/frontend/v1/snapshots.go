package v1

import (
	"context"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

// Snapshots takes, finds and removes snapshots. The ID or name of a snapshot can be used as a
// template reference.
type Snapshots interface {
	// Snapshot takes a snapshot of a running sandbox, which pauses briefly.
	Snapshot(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, caller sandbox.Principal, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error)
	// FindSnapshot finds a snapshot by ID or name. A snapshot of another key is NotFound with the
	// code "snapshot_not_found".
	FindSnapshot(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Snapshot, error)
	// RemoveSnapshot removes a snapshot. Sandboxes and snapshots created from it stay.
	RemoveSnapshot(ctx context.Context, caller sandbox.Principal, ref string) error
}

// snapshotHandlers serves snapshots.
type snapshotHandlers struct{ snapshots Snapshots }

func (h *snapshotHandlers) register(r *registry) {
	if h.snapshots == nil {
		return
	}
	register(r, created(op("snapshots-create", "POST", "/sandboxes/{id}/snapshots", "Take a snapshot of a running sandbox, which then continues")), h.takeSnapshot)
	register(r, op("snapshots-list", "GET", "/snapshots", "List the caller's snapshots"), h.listSnapshots)
	register(r, op("snapshots-get", "GET", "/snapshots/{id}", "Describe a snapshot"), h.getSnapshot)
	register(r, empty(op("snapshots-remove", "DELETE", "/snapshots/{id}", "Remove a snapshot; sandboxes and snapshots created from it stay")), h.removeSnapshot)
}

type snapshotBody struct{ Body api.Snapshot }

type takeSnapshotInput struct {
	Ref
	Body *api.CreateSnapshot
}

func (h *snapshotHandlers) takeSnapshot(ctx context.Context, caller sandbox.Principal, in *takeSnapshotInput) (*snapshotBody, error) {
	body := orZero(in.Body)
	snap, err := h.snapshots.Snapshot(ctx, caller, in.ID, sandbox.SnapshotRequest{Name: body.Name, FilesOnly: body.FilesOnly})
	if err != nil {
		return nil, err
	}
	return oneSnapshot(snap), nil
}

type snapshotsInput struct {
	Sandbox string `query:"sandbox" maxLength:"64" doc:"Only snapshots of this sandbox, by its ID."`
	Name    string `query:"name" maxLength:"256" doc:"Only snapshots with this name."`
	Limit   int    `query:"limit" minimum:"0" maximum:"100" doc:"Rows in a page; 100 if absent."`
	Cursor  string `query:"cursor" maxLength:"512" doc:"next_cursor of the page before."`
}

type snapshotsOutput struct{ Body api.SnapshotList }

func (h *snapshotHandlers) listSnapshots(ctx context.Context, caller sandbox.Principal, in *snapshotsInput) (*snapshotsOutput, error) {
	filter := sandbox.SnapshotFilter{Sandbox: in.Sandbox, Name: in.Name, Limit: in.Limit}
	if in.Cursor != "" {
		var err error
		if filter.AfterTime, filter.AfterID, err = readCursor(in.Cursor); err != nil {
			return nil, err
		}
	}
	page, err := h.snapshots.Snapshots(ctx, caller, filter)
	if err != nil {
		return nil, err
	}
	out := &snapshotsOutput{api.SnapshotList{Snapshots: make([]api.Snapshot, 0, len(page.Snapshots))}}
	for _, snap := range page.Snapshots {
		out.Body.Snapshots = append(out.Body.Snapshots, toSnapshot(snap))
	}
	if n := len(page.Snapshots); page.More && n > 0 {
		last := page.Snapshots[n-1]
		out.Body.NextCursor = cursorOf(last.CreatedAt, last.ID)
	}
	return out, nil
}

// SnapshotRef is a snapshot in a path.
type SnapshotRef struct {
	ID string `path:"id" maxLength:"256" doc:"ID or name."`
}

func (h *snapshotHandlers) getSnapshot(ctx context.Context, caller sandbox.Principal, in *SnapshotRef) (*snapshotBody, error) {
	snap, err := h.snapshots.FindSnapshot(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	return oneSnapshot(snap), nil
}

func (h *snapshotHandlers) removeSnapshot(ctx context.Context, caller sandbox.Principal, in *SnapshotRef) (*struct{}, error) {
	return nil, h.snapshots.RemoveSnapshot(ctx, caller, in.ID)
}

func oneSnapshot(s sandbox.Snapshot) *snapshotBody {
	out := toSnapshot(s)
	addFiles(out.HostFiles, s.Needs)
	return &snapshotBody{out}
}

func toSnapshot(s sandbox.Snapshot) api.Snapshot {
	return api.Snapshot{
		ID: s.ID, Name: s.Name, Engine: s.Engine, Owner: s.Owner, Sandbox: s.Sandbox, Parent: s.Parent,
		Template: s.Template, TemplateID: s.TemplateID, FilesOnly: s.FilesOnly, CreatedAt: s.CreatedAt,
		Bytes: s.Bytes, OwnBytes: s.OwnBytes, Format: s.Format, HostFiles: toHostFiles(s.Needs),
	}
}
