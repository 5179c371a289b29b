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

// buildPiece is the size of the part of a build context that one request sends, in bytes.
const buildPiece = 512 << 10

// Build builds an image from a Dockerfile. source writes the context as a tar, or is nil.
// created and progress may be nil. When ctx ends, the build is canceled.
func (c *Client) Build(ctx context.Context, req api.CreateBuild, source func(io.Writer) error, created func(api.Build), progress func(api.BuildEvent)) (api.Image, error) {
	var b api.Build
	if err := c.call(ctx, http.MethodPost, "/builds", req, &b); err != nil {
		return api.Image{}, err
	}
	if created != nil {
		created(b)
	}
	path := "/builds/" + url.PathEscape(b.ID)
	if source != nil {
		if err := c.sendContext(ctx, path, source); err != nil {
			// A failed build is not needed any more.
			return api.Image{}, errors.Join(err, c.call(context.WithoutCancel(ctx), http.MethodDelete, path, nil, nil))
		}
	}
	return c.runBuild(ctx, path, progress)
}

// errSource closes the pipe of sendContext after an error of source.
var errSource = errors.New("the context could not be written")

// sendContext sends the tar that source writes, piece by piece.
func (c *Client) sendContext(ctx context.Context, path string, source func(io.Writer) error) error {
	r, w := io.Pipe()
	defer r.Close()
	// An error of source may itself be io.ErrUnexpectedEOF, which must not end a context as
	// complete.
	var failed error
	go func() {
		if failed = source(w); failed != nil {
			w.CloseWithError(errSource)
			return
		}
		w.Close()
	}()
	piece := make([]byte, buildPiece)
	for offset := int64(0); ; {
		n, err := io.ReadFull(r, piece)
		if n > 0 {
			if err := c.call(ctx, http.MethodPut, path+"/context", api.BuildContext{Offset: offset, Data: piece[:n]}, nil); err != nil {
				return err
			}
			offset += int64(n)
		}
		switch {
		case errors.Is(err, errSource):
			return failed
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// runBuild runs a build whose context the server has, and reads its events until the end.
func (c *Client) runBuild(ctx context.Context, path string, progress func(api.BuildEvent)) (api.Image, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+api.Prefix+path+"/run", bytes.NewReader(nil))
	if err != nil {
		return api.Image{}, fmt.Errorf("crannog: %w", err)
	}
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return api.Image{}, unreachableError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return api.Image{}, responseError(resp)
	}
	for lines := json.NewDecoder(resp.Body); ; {
		var e api.BuildEvent
		if err := lines.Decode(&e); err != nil {
			return api.Image{}, unreachableError(fmt.Errorf("the build broke off: %w", errors.Join(err, ctx.Err())))
		}
		switch {
		case e.Problem != nil:
			return api.Image{}, &Error{Kind: e.Problem.Kind, Code: e.Problem.Code, Message: e.Problem.Detail, Hint: e.Problem.Hint}
		case e.Finished && e.Image != nil:
			return *e.Image, nil
		case progress != nil:
			progress(e)
		}
	}
}

// Builds lists the builds that the server remembers, the newest first.
func (c *Client) Builds(ctx context.Context) ([]api.Build, error) {
	var out api.BuildList
	err := c.call(ctx, http.MethodGet, "/builds", nil, &out)
	return out.Builds, err
}

// BuildByID describes a build. If its request asked for a signed statement and the image is built,
// it has the statement.
func (c *Client) BuildByID(ctx context.Context, id string) (api.Build, error) {
	var out api.Build
	err := c.call(ctx, http.MethodGet, "/builds/"+url.PathEscape(id), nil, &out)
	return out, err
}

// CancelBuild ends a build.
func (c *Client) CancelBuild(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/builds/"+url.PathEscape(id), nil, nil)
}
