package crannog

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/api"
)

// NewAgentKey creates a key that is valid only for the MCP tools of agents at /mcp. Its secret is
// returned only here. Local callers only.
func (c *Client) NewAgentKey(ctx context.Context, name string) (api.NewKey, error) {
	var out api.NewKey
	err := c.call(ctx, http.MethodPost, "/keys", api.CreateKey{Name: name, Opens: "mcp"}, &out)
	return out, err
}
