package crannog

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/crannog/crannog/api"
)

const consolePath = "/console/api"

// ConsoleLink creates a one-time link to the server's web console, with a scope of viewer, operator
// or admin. The person who opens it is signed in for the given time; zero is the server's default.
// Local callers only.
func (c *Client) ConsoleLink(ctx context.Context, name, scope string, life time.Duration) (api.ConsoleLink, error) {
	var out api.ConsoleLink
	in := api.CreateConsoleLink{Name: name, Scope: scope, Seconds: int64(life / time.Second)}
	err := c.callAt(ctx, http.MethodPost, consolePath+"/tokens", in, &out)
	return out, err
}

// ConsoleSessions lists the signed-in sessions of the console.
func (c *Client) ConsoleSessions(ctx context.Context) ([]api.ConsoleSession, error) {
	var out api.ConsoleSessionList
	err := c.callAt(ctx, http.MethodGet, consolePath+"/sessions", nil, &out)
	return out.Sessions, err
}

// EndConsoleSession signs a session of the console out.
func (c *Client) EndConsoleSession(ctx context.Context, id string) error {
	return c.callAt(ctx, http.MethodDelete, consolePath+"/sessions/"+url.PathEscape(id), nil, nil)
}
