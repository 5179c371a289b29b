package crannog

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/crannog/crannog/api"
)

// advisories is the path of the advisory databases.
const advisories = "/package-cache/advisories"

// Advisories lists the advisory databases of the package gate. Local callers only.
func (c *Client) Advisories(ctx context.Context) ([]api.AdvisoryDatabase, error) {
	var out api.AdvisoryList
	err := c.call(ctx, http.MethodGet, advisories, nil, &out)
	return out.Databases, err
}

// ImportAdvisories adds advisories in OSV's format to the databases of the package gate: a zip of
// JSON files, or one JSON file. An advisory replaces the one with the same ID, unless that is newer.
// Local callers only.
func (c *Client) ImportAdvisories(ctx context.Context, content io.Reader) (api.ImportedAdvisories, error) {
	var out api.ImportedAdvisories
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.base+api.Prefix+advisories, content)
	if err != nil {
		return out, fmt.Errorf("crannog: %w", err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return out, unreachableError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return out, responseError(resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResponse)).Decode(&out); err != nil {
		return out, unreachableError(fmt.Errorf("import advisories: the answer is not valid JSON: %w", err))
	}
	return out, nil
}

// RemoveAdvisories removes the advisory database of an ecosystem. Policies with packages.advisories
// then refuse packages of it. Local callers only.
func (c *Client) RemoveAdvisories(ctx context.Context, ecosystem string) error {
	return c.call(ctx, http.MethodDelete, advisories+"/"+segment(ecosystem), nil, nil)
}
