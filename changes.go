package crannog

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/crannog/crannog/api"
)

// ChangesOptions select changes of a sandbox. The zero value selects all changes of
// its workspace since its start, without diffs.
type ChangesOptions struct {
	// Since is "start" or a snapshot, by ID or name.
	Since string
	// Dir is the directory inside; "" is /workspace.
	Dir string
	// Paths are paths below Dir, including everything below them, or globs.
	Paths []string
	// Text asks for unified diffs and counts of lines.
	Text bool
}

func (o ChangesOptions) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"since": o.Since, "dir": o.Dir} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, p := range o.Paths {
		q.Add("path", p)
	}
	if o.Text {
		q.Set("text", "true")
	}
	return q
}

// ExportOptions select the changes for Export.
type ExportOptions struct {
	ChangesOptions
	// Format is "tar" for the current files, or "patch" for git apply.
	Format string
	// Protected includes protected files and files that tools run by themselves.
	Protected bool
	// Digest, if given, must be the digest of the current changes.
	Digest string
	// Provenance, if given, receives a signed statement about the export: a DSSE
	// envelope for VerifyArtifact. It is complete before the first byte of the
	// export is written.
	Provenance io.Writer
	// Masked, if given, is set to the number of files that contain secrets, which
	// the export replaces with asterisks.
	Masked *int
}

// Changes returns the change set of the sandbox.
func (s *Sandbox) Changes(ctx context.Context, o ChangesOptions) (api.Changes, error) {
	return s.client.ChangesOf(ctx, s.ID(), o)
}

// Apply applies changes of the sandbox's workspace to its directory on the host: all of the
// permitted changes or none. If the policy requires an approval, the error is an ErrDenied with the
// code "export_pending" until exactly these changes are approved. Local callers only.
func (s *Sandbox) Apply(ctx context.Context, req api.Apply) (api.Applied, error) {
	return s.client.ApplyOf(ctx, s.ID(), req)
}

// Export writes changes of the sandbox to w. After an error the output is incomplete
// and must not be used.
func (s *Sandbox) Export(ctx context.Context, o ExportOptions, w io.Writer) error {
	return s.client.ExportOf(ctx, s.ID(), o, w)
}

// ChangesOf is Changes by the ID of a sandbox. It also returns the retained changes of
// an ended sandbox.
func (c *Client) ChangesOf(ctx context.Context, id string, o ChangesOptions) (api.Changes, error) {
	var out api.Changes
	err := c.call(ctx, http.MethodGet, "/sandboxes/"+segment(id)+"/changes?"+o.query().Encode(), nil, &out)
	return out, err
}

// ApplyOf is Apply by the ID of a sandbox, which may have ended.
func (c *Client) ApplyOf(ctx context.Context, id string, req api.Apply) (api.Applied, error) {
	var out api.Applied
	err := c.call(ctx, http.MethodPost, "/sandboxes/"+segment(id)+"/apply", req, &out)
	return out, err
}

// errExportCut is returned for a stream that ended too early.
var errExportCut = errors.New("crannog: the export broke off")

// ExportOf is Export by the ID of a sandbox, which may have ended.
func (c *Client) ExportOf(ctx context.Context, id string, o ExportOptions, w io.Writer) error {
	q := o.query()
	q.Del("text")
	q.Set("format", o.Format)
	if o.Protected {
		q.Set("protected", "true")
	}
	if o.Digest != "" {
		q.Set("digest", o.Digest)
	}
	if o.Provenance != nil {
		q.Set("provenance", "true")
	}
	resp, err := c.open(ctx, "/sandboxes/"+segment(id)+"/export?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// The length is known before the first byte, so that an incomplete patch is detected.
	if resp.ContentLength < 0 {
		return errExportCut
	}
	if n := resp.Header.Get("Crannog-Masked"); o.Masked != nil && n != "" {
		if *o.Masked, err = strconv.Atoi(n); err != nil {
			return errExportCut
		}
	}
	if o.Provenance != nil {
		return copySignedExport(resp, o.Provenance, w)
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return errors.Join(errExportCut, err)
	}
	return nil
}

// KeepChanges retains the changes below the sandbox's workspace beyond its end.
// Without changes nothing is retained, and Files is zero. Local callers only.
func (s *Sandbox) KeepChanges(ctx context.Context) (api.RetainedChanges, error) {
	var out api.RetainedChanges
	err := s.client.call(ctx, http.MethodPost, s.path("/changes/keep"), nil, &out)
	return out, err
}

// KeptChanges lists the retained changes of ended sandboxes, newest first. Local
// callers only.
func (c *Client) KeptChanges(ctx context.Context) ([]api.RetainedChanges, error) {
	var out api.RetainedList
	err := c.call(ctx, http.MethodGet, "/changes", nil, &out)
	return out.Changes, err
}

// DiscardChanges deletes the retained changes of an ended sandbox. Local callers only.
func (c *Client) DiscardChanges(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/sandboxes/"+segment(id)+"/changes", nil, nil)
}
