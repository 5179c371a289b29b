package server

import (
	"context"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/secrets"
)

// auditedVault adds audit entries to the vault. It writes an entry before each change. A change
// reaches the sandboxes that use the secret before the request is answered.
type auditedVault struct {
	*secrets.Vault
	d *Server
}

// Set implements the frontends' Secrets.
func (v auditedVault) Set(ctx context.Context, requester secrets.Caller, name string, value []byte, metadata map[string]string) (secrets.Info, error) {
	var info secrets.Info
	err := v.withEntry(ctx, requester, audit.SecretStored, "stored", name, func() (err error) {
		info, err = v.Vault.Set(ctx, requester, name, value, metadata)
		return err
	})
	return info, err
}

// Rotate implements the frontends' Secrets.
func (v auditedVault) Rotate(ctx context.Context, requester secrets.Caller, ref string, value []byte, metadata map[string]string) (secrets.Info, error) {
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
func (v auditedVault) Remove(ctx context.Context, requester secrets.Caller, ref string) (secrets.Info, error) {
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
func (v auditedVault) RotateKey(ctx context.Context, requester secrets.Caller) (int, error) {
	moved := 0
	err := v.withEntry(ctx, requester, audit.SecretStored, "resealed", "", func() (err error) {
		moved, err = v.Vault.RotateKey(ctx, requester)
		return err
	})
	return moved, err
}

// withEntry writes an entry and then calls change. The entry contains only the secret's name, which
// is shortened, because a caller may send any text.
func (v auditedVault) withEntry(ctx context.Context, requester secrets.Caller, kind audit.Kind, do, name string, change func() error) error {
	const limit = 256
	if len(name) > limit {
		name = name[:limit]
	}
	by := actor(ctx, requester.Owner)
	if err := v.d.Audit.Append(ctx, audit.Draft{Kind: kind, Actor: by, Data: payload.Secret{Name: name, Owner: requester.Owner, Do: do}}); err != nil {
		return err
	}
	err := change()
	if err != nil {
		v.d.failureEntry(by, "secret."+do, err)
	}
	return err
}
