package crannog

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/api"
)

// NewAgentKey makes a key that opens the tools of agents over HTTP, and nothing
// else. Its secret is shown this once. Local callers only.
func (c *Client) NewAgentKey(ctx context.Context, name string) (api.NewKey, error) {
	var out api.NewKey
	err := c.call(ctx, http.MethodPost, "/keys", api.CreateKey{Name: name, Opens: "mcp"}, &out)
	return out, err
}
