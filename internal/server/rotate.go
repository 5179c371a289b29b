package server

import (
	"context"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/secrets"
)

// rotating adds audit entries to the vault: an entry is written before each change, and the change
// reaches the sandboxes that use the secret before the request is answered.
type rotating struct {
	*secrets.Vault
	d *Server
}

// Set implements the frontends' Secrets.
func (v rotating) Set(ctx context.Context, requester secrets.Caller, name string, value []byte, metadata map[string]string) (secrets.Info, error) {
	var info secrets.Info
	err := v.withEntry(ctx, requester, audit.SecretStored, "stored", name, func() (err error) {
		info, err = v.Vault.Set(ctx, requester, name, value, metadata)
		return err
	})
	return info, err
}

// Rotate implements the frontends' Secrets.
func (v rotating) Rotate(ctx context.Context, requester secrets.Caller, ref string, value []byte, metadata map[string]string) (secrets.Info, error) {
	var info secrets.Info
	err := v.withEntry(ctx, requester, audit.SecretStored, "rotated", ref, func() (err error) {
		info, err = v.Vault.Rotate(ctx, requester, ref, value, metadata)
		return err
	})
	if err != nil {
		return info, err
	}
	return info, v.d.Service.RotateSecrets(ctx, requester.Owner)
}

// Remove implements the frontends' Secrets. Sandboxes lose the value at the same time.
func (v rotating) Remove(ctx context.Context, requester secrets.Caller, ref string) (secrets.Info, error) {
	var info secrets.Info
	err := v.withEntry(ctx, requester, audit.SecretRemoved, "removed", ref, func() (err error) {
		info, err = v.Vault.Remove(ctx, requester, ref)
		return err
	})
	if err != nil {
		return info, err
	}
	return info, v.d.Service.RotateSecrets(ctx, requester.Owner)
}

// RotateKey implements the frontends' Secrets.
func (v rotating) RotateKey(ctx context.Context, requester secrets.Caller) (int, error) {
	moved := 0
	err := v.withEntry(ctx, requester, audit.SecretStored, "resealed", "", func() (err error) {
		moved, err = v.Vault.RotateKey(ctx, requester)
		return err
	})
	return moved, err
}

// withEntry writes an entry and then changes a secret. The entry contains only the name, shortened
// if it is not a valid name.
func (v rotating) withEntry(ctx context.Context, requester secrets.Caller, kind audit.Kind, do, name string, act func() error) error {
	const limit = 256
	if len(name) > limit {
		name = name[:limit]
	}
	by := actor(ctx, requester.Owner)
	if err := v.d.Record.Append(ctx, audit.Draft{Kind: kind, Actor: by, Data: payload.Secret{Name: name, Owner: requester.Owner, Do: do}}); err != nil {
		return err
	}
	err := act()
	if err != nil {
		v.d.failed(by, "secret."+do, err)
	}
	return err
}
