package daemon

import (
	"context"

	"github.com/crannog/crannog/internal/causeway/secrets"
	"github.com/crannog/crannog/internal/sandbox"
)

// rotating is the vault as the doors see it: what changes in it reaches the
// sandboxes that use it before the change is answered.
type rotating struct {
	*secrets.Vault
	service *sandbox.Service
}

// Rotate implements the doors' Secrets.
func (v rotating) Rotate(ctx context.Context, who secrets.Caller, ref string, value []byte, metadata map[string]string) (secrets.Info, error) {
	info, err := v.Vault.Rotate(ctx, who, ref, value, metadata)
	if err != nil {
		return info, err
	}
	return info, v.service.RotateSecrets(ctx, who.Owner)
}

// Remove implements the doors' Secrets. Sandboxes lose the value with it.
func (v rotating) Remove(ctx context.Context, who secrets.Caller, ref string) (secrets.Info, error) {
	info, err := v.Vault.Remove(ctx, who, ref)
	if err != nil {
		return info, err
	}
	return info, v.service.RotateSecrets(ctx, who.Owner)
}
