package lifecycle

import (
	"context"
	"crypto/rand"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// nameOwn gives values of a sandbox's own a name that was never used: a row
// that names them can then never mean others, whenever a process dies.
func nameOwn(a sandbox.Access) sandbox.Access {
	a.Own = ""
	if len(a.Values) > 0 {
		a.Own = "own_" + rand.Text()
	}
	return a
}

// keepOwn seals the values of an access that replaces another, and returns it
// without them.
func (s *Service) keepOwn(ctx context.Context, id string, before, next sandbox.Access) (sandbox.Access, error) {
	if len(next.Values) == 0 {
		if next.Own != before.Own {
			next.Own = ""
		}
		return next, nil
	}
	next = nameOwn(next)
	if err := s.seal(ctx, id, next); err != nil {
		return sandbox.Access{}, err
	}
	next.Values = nil
	return next, nil
}

// seal keeps an access's values.
func (s *Service) seal(ctx context.Context, id string, a sandbox.Access) error {
	if len(a.Values) == 0 {
		return nil
	}
	if s.sealed == nil {
		return fault.New(fault.Unsupported, "secrets_unavailable", "this service keeps no secrets")
	}
	return s.sealed.Keep(ctx, id, a.Own, a.Values)
}

// dropOwn forgets a sandbox's own values, but for those of one name.
func (s *Service) dropOwn(ctx context.Context, id, but string) error {
	if s.sealed == nil {
		return nil
	}
	return s.sealed.Drop(ctx, id, but)
}
