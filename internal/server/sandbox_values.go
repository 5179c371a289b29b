package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// ofSandbox returns the owner of a sandbox's own values in the vault. No key has such an ID, so no
// caller can list or name these values.
func ofSandbox(id string) secrets.Caller { return secrets.Caller{Owner: "sandbox:" + id} }

// ownValues are a sandbox's own values, by the names in its policy.
type ownValues struct {
	values     map[string]string
	generation int64
}

// Keep implements sandbox.Sealed. It stores all values of a policy as one secret, because a single
// value may be too short for the vault.
func (s sealed) Keep(ctx context.Context, id, name string, values map[string]config.Secret) error {
	plain := make(map[string]string, len(values))
	for n, v := range values {
		plain[n] = v.Reveal()
	}
	data, err := json.Marshal(plain)
	if err != nil {
		return fmt.Errorf("values of %s: %w", id, err)
	}
	defer clear(data)
	if len(data) > redact.MaxValue {
		return fault.Newf(fault.Invalid, "values_too_large", "the fixed values of all rules together have more than %d bytes", redact.MaxValue).
			WithHint("keep them as secrets, and name those")
	}
	_, err = s.vault.Set(ctx, ofSandbox(id), name, data, nil)
	return err
}

// Drop implements sandbox.Sealed.
func (s sealed) Drop(ctx context.Context, id, except string) error {
	list, err := s.vault.List(ctx, ofSandbox(id))
	if err != nil {
		return err
	}
	for _, info := range list {
		if info.Name == except {
			continue
		}
		if _, err := s.vault.Remove(ctx, ofSandbox(id), info.ID); err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// own returns a sandbox's own values.
func (s sealed) own(ctx context.Context, h sandbox.Holder) (ownValues, error) {
	if h.Own == "" {
		return ownValues{}, nil
	}
	stored, err := s.vault.Resolve(ctx, ofSandbox(h.Sandbox), h.Own)
	if err != nil {
		return ownValues{}, fmt.Errorf("values of %s: %w", h.Sandbox, err)
	}
	out := ownValues{generation: stored.Generation}
	if json.Unmarshal([]byte(stored.Value.Reveal()), &out.values) != nil {
		// Do not return the error of Unmarshal, because it would contain a part of the value.
		return ownValues{}, errors.New("values of " + h.Sandbox + ": they are not valid JSON")
	}
	return out, nil
}

// bind returns the binding of one value. It does not expire before the sandbox, because the
// sandbox's creator gave the value to this sandbox only.
func (o ownValues) bind(b policy.Bind) (egress.Secret, error) {
	value, ok := o.values[b.Name]
	if !ok {
		return egress.Secret{}, fault.New(fault.Invalid, "secret_not_found", "the policy binds "+b.Name+", which is a value that another sandbox brought with it").
			WithHint("bind a secret: crannog secret set NAME")
	}
	return egress.Secret{
		Name: b.Name, Value: value, Generation: o.generation, Host: b.Host, Port: b.Port, Header: b.Header, Format: b.Format,
		Basic: b.Basic, Methods: b.Methods, Paths: b.Paths, Uses: b.MaxUses, Approve: b.Approve,
		// A fixed value need not be a secret, so any length is allowed.
		Plain: redact.Check([]byte(value)) != nil,
	}, nil
}
