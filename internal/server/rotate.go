package server

import (
	"context"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/secrets"
)

// rotating is the vault as the doors see it: what changes in it is in the
// record before it happens, and reaches the sandboxes that use it before the
// change is answered.
type rotating struct {
	*secrets.Vault
	d *Server
}

// Set implements the doors' Secrets.
func (v rotating) Set(ctx context.Context, who secrets.Caller, name string, value []byte, metadata map[string]string) (secrets.Info, error) {
	var info secrets.Info
	err := v.entered(ctx, who, audit.SecretStored, "stored", name, func() (err error) {
		info, err = v.Vault.Set(ctx, who, name, value, metadata)
		return err
	})
	return info, err
}

// Rotate implements the doors' Secrets.
func (v rotating) Rotate(ctx context.Context, who secrets.Caller, ref string, value []byte, metadata map[string]string) (secrets.Info, error) {
	var info secrets.Info
	err := v.entered(ctx, who, audit.SecretStored, "rotated", ref, func() (err error) {
		info, err = v.Vault.Rotate(ctx, who, ref, value, metadata)
		return err
	})
	if err != nil {
		return info, err
	}
	return info, v.d.Service.RotateSecrets(ctx, who.Owner)
}

// Remove implements the doors' Secrets. Sandboxes lose the value with it.
func (v rotating) Remove(ctx context.Context, who secrets.Caller, ref string) (secrets.Info, error) {
	var info secrets.Info
	err := v.entered(ctx, who, audit.SecretRemoved, "removed", ref, func() (err error) {
		info, err = v.Vault.Remove(ctx, who, ref)
		return err
	})
	if err != nil {
		return info, err
	}
	return info, v.d.Service.RotateSecrets(ctx, who.Owner)
}

// RotateKey implements the doors' Secrets.
func (v rotating) RotateKey(ctx context.Context, who secrets.Caller) (int, error) {
	moved := 0
	err := v.entered(ctx, who, audit.SecretStored, "resealed", "", func() (err error) {
		moved, err = v.Vault.RotateKey(ctx, who)
		return err
	})
	return moved, err
}

// entered does something to a secret once the record has it. Names alone are
// told, and one that is none is cut.
func (v rotating) entered(ctx context.Context, who secrets.Caller, kind audit.Kind, do, name string, act func() error) error {
	const most = 256
	if len(name) > most {
		name = name[:most]
	}
	by := actor(ctx, who.Owner)
	if err := v.d.Record.Append(ctx, audit.Draft{Kind: kind, Actor: by, Data: payload.Secret{Name: name, Owner: who.Owner, Do: do}}); err != nil {
		return err
	}
	err := act()
	if err != nil {
		v.d.failed(by, "secret."+do, err)
	}
	return err
}
