package crannog

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/crannog/crannog/api"
)

// Volume makes a volume visible at a path inside. Programs change its files, which outlive the
// sandbox, unless it is read-only. It may be given several times.
func Volume(m api.VolumeMount) CreateOption {
	return func(r *api.CreateSandbox) { r.Volumes = append(r.Volumes, m) }
}

// Volumes lists the caller's volumes.
func (c *Client) Volumes(ctx context.Context) ([]api.Volume, error) {
	var out api.VolumeList
	err := c.call(ctx, http.MethodGet, "/volumes", nil, &out)
	return out.Volumes, err
}

// CreateVolume creates an empty volume.
func (c *Client) CreateVolume(ctx context.Context, req api.CreateVolume) (api.Volume, error) {
	var out api.Volume
	err := c.call(ctx, http.MethodPost, "/volumes", req, &out)
	return out, err
}

// InspectVolume describes a volume, by its name or ID.
func (c *Client) InspectVolume(ctx context.Context, ref string) (api.Volume, error) {
	var out api.Volume
	err := c.call(ctx, http.MethodGet, volumePath(ref), nil, &out)
	return out, err
}

// RemoveVolume removes a volume and its files. A volume that a sandbox uses is not removed.
func (c *Client) RemoveVolume(ctx context.Context, ref string) error {
	return c.call(ctx, http.MethodDelete, volumePath(ref), nil, nil)
}

// SnapshotVolume creates a volume with the present files of another one. No running sandbox may
// have that volume mounted writable.
func (c *Client) SnapshotVolume(ctx context.Context, ref, name string) (api.Volume, error) {
	var out api.Volume
	err := c.call(ctx, http.MethodPost, volumePath(ref)+"/snapshot", api.SnapshotVolume{Name: name}, &out)
	return out, err
}

// ReadVolume writes a file or a directory of a volume as a tar. An empty path is the whole volume.
func (c *Client) ReadVolume(ctx context.Context, ref, path string, w io.Writer) error {
	resp, err := c.open(ctx, volumeFiles(ref, path), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("crannog: read volume %s: %w", ref, err)
	}
	return nil
}

// WriteVolume stores the files of a tar in a directory of a volume. It replaces existing files.
func (c *Client) WriteVolume(ctx context.Context, ref, path string, tar io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.base+api.Prefix+volumeFiles(ref, path), tar)
	if err != nil {
		return fmt.Errorf("crannog: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-tar")
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachableError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return responseError(resp)
	}
	return nil
}

func volumePath(ref string) string { return "/volumes/" + url.PathEscape(ref) }

func volumeFiles(ref, path string) string {
	return volumePath(ref) + "/files?" + url.Values{"path": {path}}.Encode()
}
