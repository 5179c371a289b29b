package crannog

import (
	"context"
	"net/http"
	"net/url"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/server/standard"
)

// SecretsKey selects the key that encrypts secrets in an engine inside this process: "" is a key
// file in the state directory, "keyring" a key in the system's keyring, "transit:mount/key" a key
// in the Vault that the environment names. A server on the same state must use the same value.
func SecretsKey(key string) LocalOption {
	return func(o *standard.Options) error { o.SecretsKey = key; return nil }
}

// SecretsExec are the command lines that exec: may run, separated by semicolons.
func SecretsExec(lines string) LocalOption {
	return func(o *standard.Options) error { o.SecretsExec = lines; return nil }
}

// Secrets returns the caller's secrets. No call returns their values.
func (c *Client) Secrets(ctx context.Context) ([]api.Secret, error) {
	var out api.SecretList
	err := c.call(ctx, http.MethodGet, "/secrets", nil, &out)
	return out.Secrets, err
}

// NewSecret stores a secret. A name that is in use is an error.
func (c *Client) NewSecret(ctx context.Context, s api.CreateSecret) (api.Secret, error) {
	var out api.Secret
	err := c.call(ctx, http.MethodPost, "/secrets", s, &out)
	return out, err
}

// RotateSecret sets a new value of a secret, by name or ID. Sandboxes use the new value from their
// next request on.
func (c *Client) RotateSecret(ctx context.Context, ref string, s api.RotateSecret) (api.Secret, error) {
	var out api.Secret
	err := c.call(ctx, http.MethodPost, "/secrets/"+url.PathEscape(ref)+"/rotate", s, &out)
	return out, err
}

// RemoveSecret removes a secret, by name or ID, with all its values.
func (c *Client) RemoveSecret(ctx context.Context, ref string) error {
	return c.call(ctx, http.MethodDelete, "/secrets/"+url.PathEscape(ref), nil, nil)
}

// RotateSecretsKey encrypts the secrets of all owners with a new key. Local
// callers only.
func (c *Client) RotateSecretsKey(ctx context.Context) (api.RotatedKey, error) {
	var out api.RotatedKey
	err := c.call(ctx, http.MethodPost, "/secrets/rotate-key", nil, &out)
	return out, err
}
