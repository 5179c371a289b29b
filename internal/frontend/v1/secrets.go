package v1

import (
	"context"
	"strings"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Secrets stores secrets; secrets.Vault implements it.
type Secrets interface {
	Set(ctx context.Context, caller secrets.Caller, name string, value []byte, metadata map[string]string) (secrets.Info, error)
	Rotate(ctx context.Context, caller secrets.Caller, ref string, value []byte, metadata map[string]string) (secrets.Info, error)
	Remove(ctx context.Context, caller secrets.Caller, ref string) (secrets.Info, error)
	Find(ctx context.Context, caller secrets.Caller, ref string) (secrets.Info, error)
	List(ctx context.Context, caller secrets.Caller) ([]secrets.Info, error)
	RotateKey(ctx context.Context, caller secrets.Caller) (moved int, err error)
}

// secretHandlers serves secrets.
type secretHandlers struct{ secrets Secrets }

// register adds no operation that returns a value.
func (h *secretHandlers) register(r *registry) {
	if h.secrets == nil {
		return
	}
	register(r, op("secrets-list", "GET", "/secrets", "List the caller's secrets, without values"), h.listSecrets)
	register(r, created(op("secrets-create", "POST", "/secrets", "Store a secret")), h.createSecret)
	register(r, op("secrets-get", "GET", "/secrets/{id}", "Describe a secret, without its value"), h.getSecret)
	register(r, op("secrets-rotate", "POST", "/secrets/{id}/rotate", "Set a new value of a secret"), h.rotateSecret)
	register(r, empty(op("secrets-remove", "DELETE", "/secrets/{id}", "Remove a secret with all its values")), h.removeSecret)
	register(r, op("secrets-rotate-key", "POST", "/secrets/rotate-key", "Encrypt all secrets with a new key"), h.rotateSecretsKey)
}

// secretOwner returns the owner of a caller's secrets. Local callers have their own secrets, and do
// not see those of keys.
func secretOwner(caller sandbox.Principal) secrets.Caller {
	if caller.Local {
		return secrets.Caller{Local: true}
	}
	return secrets.Caller{Owner: caller.KeyID}
}

// secretValue returns an error for a value that is not UTF-8, because a JSON decoder would replace
// its bytes by U+FFFD and store another secret.
func secretValue(value string) ([]byte, error) {
	if strings.ContainsRune(value, '\uFFFD') {
		return nil, fault.New(fault.Invalid, "secret_not_text", "a secret's value must be UTF-8 text").
			WithHint("encode it, for example as base64")
	}
	return []byte(value), nil
}

type secretBody struct{ Body api.Secret }

type secretsOutput struct{ Body api.SecretList }

func (h *secretHandlers) listSecrets(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*secretsOutput, error) {
	list, err := h.secrets.List(ctx, secretOwner(caller))
	if err != nil {
		return nil, err
	}
	out := &secretsOutput{api.SecretList{Secrets: make([]api.Secret, 0, len(list))}}
	for _, info := range list {
		out.Body.Secrets = append(out.Body.Secrets, toSecret(info))
	}
	return out, nil
}

type createSecretInput struct{ Body api.CreateSecret }

func (h *secretHandlers) createSecret(ctx context.Context, caller sandbox.Principal, in *createSecretInput) (*secretBody, error) {
	value, err := secretValue(in.Body.Value)
	if err != nil {
		return nil, err
	}
	defer clear(value)
	info, err := h.secrets.Set(ctx, secretOwner(caller), in.Body.Name, value, in.Body.Metadata)
	if err != nil {
		return nil, err
	}
	return &secretBody{toSecret(info)}, nil
}

// SecretRef is a secret in a path.
type SecretRef struct {
	ID string `path:"id" maxLength:"64" doc:"ID or name."`
}

func (h *secretHandlers) getSecret(ctx context.Context, caller sandbox.Principal, in *SecretRef) (*secretBody, error) {
	info, err := h.secrets.Find(ctx, secretOwner(caller), in.ID)
	if err != nil {
		return nil, err
	}
	return &secretBody{toSecret(info)}, nil
}

type rotateSecretInput struct {
	SecretRef
	Body api.RotateSecret
}

func (h *secretHandlers) rotateSecret(ctx context.Context, caller sandbox.Principal, in *rotateSecretInput) (*secretBody, error) {
	value, err := secretValue(in.Body.Value)
	if err != nil {
		return nil, err
	}
	defer clear(value)
	info, err := h.secrets.Rotate(ctx, secretOwner(caller), in.ID, value, in.Body.Metadata)
	if err != nil {
		return nil, err
	}
	return &secretBody{toSecret(info)}, nil
}

func (h *secretHandlers) removeSecret(ctx context.Context, caller sandbox.Principal, in *SecretRef) (*struct{}, error) {
	_, err := h.secrets.Remove(ctx, secretOwner(caller), in.ID)
	return nil, err
}

type rotatedKeyOutput struct{ Body api.RotatedKey }

func (h *secretHandlers) rotateSecretsKey(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*rotatedKeyOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	moved, err := h.secrets.RotateKey(ctx, secretOwner(caller))
	if err != nil {
		return nil, err
	}
	return &rotatedKeyOutput{api.RotatedKey{Moved: moved}}, nil
}

func toSecret(info secrets.Info) api.Secret {
	out := api.Secret{
		ID: info.ID, Name: info.Name, Version: info.Version, Metadata: info.Metadata,
		CreatedAt: info.Created, UpdatedAt: info.Updated,
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	return out
}
