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

// ofSandbox is the owner of a sandbox's own values in the vault. No key has such an ID, so these
// values are not listed and cannot be named.
func ofSandbox(id string) secrets.Caller { return secrets.Caller{Owner: "sandbox:" + id} }

// ownValues are a sandbox's own values, by the names that its policy binds.
type ownValues struct {
	values     map[string]string
	generation int64
}

// Keep implements sandbox.Sealed. All values of a policy are stored as one secret, because a single
// one may be too short for the vault.
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
func (s sealed) Drop(ctx context.Context, id, but string) error {
	list, err := s.vault.List(ctx, ofSandbox(id))
	if err != nil {
		return err
	}
	for _, info := range list {
		if info.Name == but {
			continue
		}
		if _, err := s.vault.Remove(ctx, ofSandbox(id), info.ID); err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// own reads a sandbox's own values.
func (s sealed) own(ctx context.Context, h sandbox.Holder) (ownValues, error) {
	if h.Own == "" {
		return ownValues{}, nil
	}
	kept, err := s.vault.Resolve(ctx, ofSandbox(h.Sandbox), h.Own)
	if err != nil {
		return ownValues{}, fmt.Errorf("values of %s: %w", h.Sandbox, err)
	}
	out := ownValues{generation: kept.Generation}
	if json.Unmarshal([]byte(kept.Value.Reveal()), &out.values) != nil {
		// The error would contain a part of the value.
		return ownValues{}, errors.New("values of " + h.Sandbox + ": they are not valid JSON")
	}
	return out, nil
}

// bind returns a binding for the lifetime of the sandbox, because its creator gave the value to
// this sandbox alone.
func (o ownValues) bind(b policy.Bind) (egress.Secret, error) {
	value, there := o.values[b.Name]
	if !there {
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
