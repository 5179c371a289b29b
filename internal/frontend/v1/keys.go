package v1

import (
	"cmp"
	"context"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/key"
)

// localOnly refuses keys for operations that only the machine's user may perform: creating keys,
// and pruning, which affects all callers.
func localOnly(caller sandbox.Principal) error {
	if caller.Local {
		return nil
	}
	return fault.New(fault.Denied, "local_only", "only a caller on the server's own machine may do this").
		WithHint("run the command there, as the user who runs the server")
}

// Keys creates, lists and revokes API keys.
type Keys interface {
	CreateFor(ctx context.Context, name string, opens key.Opens) (secret string, k key.Key, err error)
	List(ctx context.Context) ([]key.Key, error)
	Revoke(ctx context.Context, ref string) (key.Key, error)
}

// keyHandlers serves API keys.
type keyHandlers struct{ keys Keys }

func (h *keyHandlers) register(r *registry) {
	register(r, op("keys-list", "GET", "/keys", "List API keys"), h.listKeys)
	register(r, created(op("keys-create", "POST", "/keys", "Create an API key")), h.createKey)
	register(r, empty(op("keys-revoke", "DELETE", "/keys/{id}", "Revoke an API key")), h.revokeKey)
}

type keysOutput struct{ Body api.KeyList }

func (h *keyHandlers) listKeys(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*keysOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	keys, err := h.keys.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &keysOutput{api.KeyList{Keys: make([]api.Key, 0, len(keys))}}
	for _, k := range keys {
		out.Body.Keys = append(out.Body.Keys, toKey(k))
	}
	return out, nil
}

type createKeyInput struct{ Body api.CreateKey }

type createKeyOutput struct{ Body api.NewKey }

func (h *keyHandlers) createKey(ctx context.Context, caller sandbox.Principal, in *createKeyInput) (*createKeyOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	secret, k, err := h.keys.CreateFor(ctx, in.Body.Name, key.Opens(cmp.Or(in.Body.Opens, string(key.API))))
	if err != nil {
		return nil, err
	}
	return &createKeyOutput{api.NewKey{Key: toKey(k), Secret: secret}}, nil
}

func (h *keyHandlers) revokeKey(ctx context.Context, caller sandbox.Principal, in *Ref) (*struct{}, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	_, err := h.keys.Revoke(ctx, in.ID)
	return nil, err
}
