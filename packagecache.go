package crannog

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/api"
)

// PackageCache describes the contents of the package cache of the server's machine. Local callers
// only.
func (c *Client) PackageCache(ctx context.Context) (api.PackageCache, error) {
	var out api.PackageCache
	err := c.call(ctx, http.MethodGet, "/package-cache", nil, &out)
	return out, err
}

// PrunePackages removes the least recently used data of the package cache until at most keep bytes
// are left. Local callers only.
func (c *Client) PrunePackages(ctx context.Context, keep int64) (api.PrunedPackages, error) {
	var out api.PrunedPackages
	err := c.call(ctx, http.MethodPost, "/package-cache/prune", api.PrunePackages{Keep: keep}, &out)
	return out, err
}

// VerifyPackages compares the contents of the package cache with their digests, and removes damaged
// ones. Local callers only.
func (c *Client) VerifyPackages(ctx context.Context) (api.VerifiedPackages, error) {
	var out api.VerifiedPackages
	err := c.call(ctx, http.MethodPost, "/package-cache/verify", nil, &out)
	return out, err
}
