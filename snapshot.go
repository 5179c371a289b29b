package crannog

import (
	"context"
	"net/http"
	"net/url"

	"github.com/crannog/crannog/api"
)

// SnapshotOptions select snapshots. The zero value selects all of the caller's.
type SnapshotOptions struct {
	Sandbox string // ID of the sandbox that the snapshots were taken of
	Name    string
}

// Snapshots describes the caller's snapshots, newest first.
func (c *Client) Snapshots(ctx context.Context, o SnapshotOptions) ([]api.Snapshot, error) {
	query := url.Values{}
	if o.Sandbox != "" {
		query.Set("sandbox", o.Sandbox)
	}
	if o.Name != "" {
		query.Set("name", o.Name)
	}
	var all []api.Snapshot
	for {
		var page api.SnapshotList
		if err := c.call(ctx, http.MethodGet, "/snapshots?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Snapshots...)
		if page.NextCursor == "" || page.NextCursor == query.Get("cursor") {
			return all, nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

// FindSnapshot finds a snapshot by its ID or name. If the snapshot does not exist or belongs to
// another key, the error is an ErrNotFound with the code "snapshot_not_found".
func (c *Client) FindSnapshot(ctx context.Context, ref string) (api.Snapshot, error) {
	var out api.Snapshot
	err := c.call(ctx, http.MethodGet, "/snapshots/"+segment(ref), nil, &out)
	return out, err
}

// RemoveSnapshot removes a snapshot, by ID or name. Sandboxes and snapshots created from it remain.
func (c *Client) RemoveSnapshot(ctx context.Context, ref string) error {
	return c.call(ctx, http.MethodDelete, "/snapshots/"+segment(ref), nil, nil)
}
