package v1

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

func (s *server) snapshotRoutes(a huma.API) {
	if s.Snapshots == nil {
		return
	}
	register(s, a, created(op("snapshots-create", "POST", "/sandboxes/{id}/snapshots", "Keep the state of a running sandbox, which continues")), s.takeSnapshot)
	register(s, a, op("snapshots-list", "GET", "/snapshots", "The caller's snapshots"), s.listSnapshots)
	register(s, a, op("snapshots-get", "GET", "/snapshots/{id}", "Describe a snapshot"), s.getSnapshot)
	register(s, a, empty(op("snapshots-remove", "DELETE", "/snapshots/{id}", "Forget a snapshot; what came from it stays")), s.removeSnapshot)
}

type snapshotBody struct{ Body api.Snapshot }

type takeSnapshotInput struct {
	Ref
	Body *api.CreateSnapshot
}

func (s *server) takeSnapshot(ctx context.Context, who sandbox.Principal, in *takeSnapshotInput) (*snapshotBody, error) {
	body := orZero(in.Body)
	snap, err := s.Snapshots.Snapshot(ctx, who, in.ID, sandbox.SnapshotRequest{Name: body.Name, FilesOnly: body.FilesOnly})
	if err != nil {
		return nil, err
	}
	return oneSnapshot(snap), nil
}

type snapshotsInput struct {
	Sandbox string `query:"sandbox" maxLength:"64" doc:"Only those of this sandbox, by its ID."`
	Name    string `query:"name" maxLength:"256" doc:"Only those of this name."`
	Limit   int    `query:"limit" minimum:"0" maximum:"100" doc:"Rows on a page; 100 if absent."`
	Cursor  string `query:"cursor" maxLength:"512" doc:"next_cursor of the page before."`
}

type snapshotsOutput struct{ Body api.SnapshotList }

func (s *server) listSnapshots(ctx context.Context, who sandbox.Principal, in *snapshotsInput) (*snapshotsOutput, error) {
	filter := sandbox.SnapshotFilter{Sandbox: in.Sandbox, Name: in.Name, Limit: in.Limit}
	if in.Cursor != "" {
		var err error
		if filter.AfterTime, filter.AfterID, err = readCursor(in.Cursor); err != nil {
			return nil, err
		}
	}
	page, err := s.Snapshots.Snapshots(ctx, who, filter)
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

// SnapshotRef is how a path names a snapshot.
type SnapshotRef struct {
	ID string `path:"id" maxLength:"256" doc:"ID or name."`
}

func (s *server) getSnapshot(ctx context.Context, who sandbox.Principal, in *SnapshotRef) (*snapshotBody, error) {
	snap, err := s.Snapshots.FindSnapshot(ctx, who, in.ID)
	if err != nil {
		return nil, err
	}
	return oneSnapshot(snap), nil
}

func (s *server) removeSnapshot(ctx context.Context, who sandbox.Principal, in *SnapshotRef) (*struct{}, error) {
	return nil, s.Snapshots.RemoveSnapshot(ctx, who, in.ID)
}

func oneSnapshot(s sandbox.Snapshot) *snapshotBody {
	out := toSnapshot(s)
	whole(out.HostFiles, s.Needs)
	return &snapshotBody{out}
}

func toSnapshot(s sandbox.Snapshot) api.Snapshot {
	return api.Snapshot{
		ID: s.ID, Name: s.Name, Engine: s.Engine, Owner: s.Owner, Sandbox: s.Sandbox, Parent: s.Parent,
		Template: s.Template, TemplateID: s.TemplateID, FilesOnly: s.FilesOnly, CreatedAt: s.CreatedAt,
		Bytes: s.Bytes, OwnBytes: s.OwnBytes, Format: s.Format, HostFiles: toHostFiles(s.Needs),
	}
}
