package crannog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/crannog/crannog/api"
)

// Images lists the OCI images of the server's machine.
func (c *Client) Images(ctx context.Context) ([]api.Image, error) {
	var out api.ImageList
	err := c.call(ctx, http.MethodGet, "/images", nil, &out)
	return out.Images, err
}

// InspectImage describes an image, by its name or the beginning of its digest.
func (c *Client) InspectImage(ctx context.Context, ref string) (api.Image, error) {
	var out api.Image
	err := c.call(ctx, http.MethodGet, "/images/inspect?"+imageQuery(ref).Encode(), nil, &out)
	return out, err
}

// InspectImageOn is InspectImage, and also finds images in the store of an engine, such as a
// Docker Engine. Local callers only.
func (c *Client) InspectImageOn(ctx context.Context, ref, engine string) (api.Image, error) {
	var out api.Image
	query := imageQuery(ref)
	if engine != "" {
		query.Set("engine", engine)
	}
	err := c.call(ctx, http.MethodGet, "/images/inspect?"+query.Encode(), nil, &out)
	return out, err
}

// RemoveImage removes an image by a name, and returns the removed names. Local callers only.
func (c *Client) RemoveImage(ctx context.Context, ref string) ([]string, error) {
	var out api.RemovedImages
	err := c.call(ctx, http.MethodDelete, "/images?"+imageQuery(ref).Encode(), nil, &out)
	return out.Removed, err
}

// PruneImages removes data that no image, sandbox or snapshot needs. Local callers only.
func (c *Client) PruneImages(ctx context.Context) (api.PrunedImages, error) {
	var out api.PrunedImages
	err := c.call(ctx, http.MethodPost, "/images/prune", nil, &out)
	return out, err
}

// PullImage pulls an image from a registry. progress may be nil. Local callers only.
func (c *Client) PullImage(ctx context.Context, req api.PullImage, progress func(api.ImageEvent)) (api.Image, error) {
	list, err := c.runImageOperation(ctx, "pull", req, progress)
	if err != nil || len(list) == 0 {
		return api.Image{}, err
	}
	return list[0], nil
}

// PushImage pushes an image to a registry. progress may be nil. Local callers only.
func (c *Client) PushImage(ctx context.Context, req api.PushImage, progress func(api.ImageEvent)) error {
	_, err := c.runImageOperation(ctx, "push", req, progress)
	return err
}

// AttachToImage sends a file about an image, such as a list of its packages, to the registry that has
// the image. Clients of the registry find it as a referrer of the image. Local callers only.
func (c *Client) AttachToImage(ctx context.Context, req api.AttachToImage) (api.AttachedFile, error) {
	var out api.AttachedFile
	err := c.call(ctx, http.MethodPost, "/images/attach", req, &out)
	return out, err
}

// AttachedToImage lists the files that are attached to an image of this machine in the registry of
// its name, or of from if that is not empty. Local callers only.
func (c *Client) AttachedToImage(ctx context.Context, ref, from string) ([]api.ListedFile, error) {
	var out api.AttachedFiles
	err := c.call(ctx, http.MethodGet, "/images/attached?"+attachedQuery(ref, from).Encode(), nil, &out)
	return out.Files, err
}

// ReadAttachedToImage fetches a file that is attached to an image, by the digest of its manifest, or
// by its media type if only one file has it. The digests of the manifest and of the file are
// compared. Local callers only.
func (c *Client) ReadAttachedToImage(ctx context.Context, ref, from, which string) ([]byte, error) {
	query := attachedQuery(ref, from)
	query.Set("file", which)
	resp, err := c.open(ctx, "/images/attached/file?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("crannog: read a file about %s: %w", ref, err)
	}
	return data, nil
}

func attachedQuery(ref, from string) url.Values {
	query := imageQuery(ref)
	if from != "" {
		query.Set("from", from)
	}
	return query
}

// ImportImage reads images from a file of the server's machine. progress may be nil. Local
// callers only.
func (c *Client) ImportImage(ctx context.Context, req api.ImportImage, progress func(api.ImageEvent)) ([]api.Image, error) {
	return c.runImageOperation(ctx, "import", req, progress)
}

// ExportImage writes an image as a tar, in the format "oci" or "docker". Local callers
// only.
func (c *Client) ExportImage(ctx context.Context, ref, format string, w io.Writer) error {
	query := imageQuery(ref)
	if format != "" {
		query.Set("format", format)
	}
	resp, err := c.open(ctx, "/images/archive?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("crannog: export %s: %w", ref, err)
	}
	return nil
}

func imageQuery(ref string) url.Values { return url.Values{"image": {ref}} }

// runImageOperation starts an operation on images, such as "pull", and reads its progress.
func (c *Client) runImageOperation(ctx context.Context, operation string, in any, progress func(api.ImageEvent)) ([]api.Image, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("crannog: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+api.Prefix+"/images/"+operation, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("crannog: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachableError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, responseError(resp)
	}
	for lines := json.NewDecoder(resp.Body); ; {
		var e api.ImageEvent
		if err := lines.Decode(&e); err != nil {
			return nil, unreachableError(fmt.Errorf("%s of an image broke off: %w", operation, errors.Join(err, ctx.Err())))
		}
		switch {
		case e.Problem != nil:
			return nil, &Error{Kind: e.Problem.Kind, Code: e.Problem.Code, Message: e.Problem.Detail, Hint: e.Problem.Hint}
		case e.Finish:
			return e.Images, nil
		case progress != nil:
			progress(e)
		}
	}
}
