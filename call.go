package crannog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/crannog/crannog/api"
)

// maxResponse bounds a response of the API, so that a server cannot fill the client's memory. The
// largest is a list of sandboxes.
const maxResponse = 64 << 20

// call sends in as JSON and decodes the response into out. Both may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	return c.callAt(ctx, method, api.Prefix+path, in, out)
}

// callAt is call with a path that contains the API's prefix, or with a path of another API.
func (c *Client) callAt(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("crannog: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("crannog: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	if deadline, ok := ctx.Deadline(); ok {
		// With this header, the server refuses a request at once that it cannot complete in time.
		req.Header.Set(api.TimeoutHeader, strconv.FormatInt(max(time.Until(deadline).Milliseconds(), 1), 10))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachableError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return responseError(resp)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResponse)).Decode(out); err != nil {
		return unreachableError(fmt.Errorf("%s %s: the answer is not valid JSON: %w", method, path, err))
	}
	return nil
}

// open sends a GET request whose response may have any length. The caller closes the body.
func (c *Client) open(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+api.Prefix+path, nil)
	if err != nil {
		return nil, fmt.Errorf("crannog: %w", err)
	}
	maps.Copy(req.Header, header)
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachableError(err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp, nil
}

// Engines lists the engines that sandboxes can be created on, and whether each is
// available on the server's host.
func (c *Client) Engines(ctx context.Context) ([]api.Engine, error) {
	var out api.EngineList
	err := c.call(ctx, http.MethodGet, "/engines", nil, &out)
	return out.Engines, err
}

// Engine describes the default engine.
func (c *Client) Engine(ctx context.Context) (api.Engine, error) {
	var out api.Engine
	err := c.call(ctx, http.MethodGet, "/engine", nil, &out)
	return out, err
}

// Queue returns the number of sandboxes that the server is starting, the number of
// waiting requests, and the positions of the caller's own requests.
func (c *Client) Queue(ctx context.Context) (api.Queue, error) {
	var out api.Queue
	err := c.call(ctx, http.MethodGet, "/queue", nil, &out)
	return out, err
}

// Version returns the server's version.
func (c *Client) Version(ctx context.Context) (api.Version, error) {
	var out api.Version
	err := c.call(ctx, http.MethodGet, "/version", nil, &out)
	return out, err
}

// Prune removes ended sandboxes and unreferenced saved states. Local callers only.
func (c *Client) Prune(ctx context.Context) (api.Pruned, error) {
	var out api.Pruned
	err := c.call(ctx, http.MethodPost, "/prune", nil, &out)
	return out, err
}

// NewKey creates an API key. Its secret is returned only here. Local callers only.
func (c *Client) NewKey(ctx context.Context, name string) (api.NewKey, error) {
	var out api.NewKey
	err := c.call(ctx, http.MethodPost, "/keys", api.CreateKey{Name: name}, &out)
	return out, err
}

// Keys lists the API keys. Local callers only.
func (c *Client) Keys(ctx context.Context) ([]api.Key, error) {
	var out api.KeyList
	err := c.call(ctx, http.MethodGet, "/keys", nil, &out)
	return out.Keys, err
}

// RevokeKey revokes a key at once. Local callers only.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/keys/"+segment(id), nil, nil)
}
