package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// sealed finds the values of the secrets that a policy binds.
type sealed struct {
	vault *secrets.Vault
	now   func() time.Time
}

// Resolve implements sandbox.Sealed.
func (s sealed) Resolve(ctx context.Context, h sandbox.Holder, p *policy.Policy) ([]egress.Secret, error) {
	requester := secrets.Caller{Owner: h.Owner, Local: h.Local}
	own, err := s.own(ctx, h)
	if err != nil {
		return nil, err
	}
	var list []egress.Secret
	for _, b := range p.Binds() {
		if strings.HasPrefix(b.Name, policy.OwnPrefix) && b.From == "" {
			bound, err := own.bind(b)
			if err != nil {
				return nil, err
			}
			list = append(list, bound)
			continue
		}
		ref := b.From
		if ref == "" {
			ref = b.Name
		}
		value, err := s.vault.Resolve(ctx, requester, ref)
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", b.Name, withName(b.Name, err))
		}
		bound := egress.Secret{
			Name: b.Name, Value: value.Value.Reveal(), Generation: value.Generation,
			Host: b.Host, Port: b.Port, Header: b.Header, Format: b.Format, Basic: b.Basic,
			Methods: b.Methods, Paths: b.Paths, Uses: b.MaxUses, Approve: b.Approve,
		}
		// The policy's "task" is this sandbox. If an approval is needed once for each task, it is
		// requested at the first use in the sandbox.
		bound.ApproveFirst = p.Document().Secrets.Approve != "never"
		if b.TTL > 0 {
			bound.Expires = s.now().Add(time.Duration(b.TTL))
		}
		for _, old := range value.Old {
			bound.Old = append(bound.Old, old.Reveal())
		}
		list = append(list, bound)
	}
	return list, nil
}

// withName adds the secret's name to an error about a secret that does not exist.
func withName(name string, err error) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return fault.Wrap(err, fault.Invalid, "secret_not_found", "the policy binds the secret "+name+", which does not exist").
		WithHint("crannog secret set " + name)
}
