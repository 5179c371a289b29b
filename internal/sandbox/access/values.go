package access

import (
	"context"
	"crypto/rand"

	"github.com/crannog/crannog/internal/sandbox"
)

// NameValues chooses a new, unique name under which a sandbox's own values will be stored. So a row
// with that name never refers to other values, whenever a process is killed.
func NameValues(a sandbox.Access) sandbox.Access {
	a.Own = ""
	if len(a.Values) > 0 {
		a.Own = "own_" + rand.Text()
	}
	return a
}

// Reseal encrypts and stores the values of an access that replaces another, and returns the access
// without the values.
func (s *Service) Reseal(ctx context.Context, id string, before, next sandbox.Access) (sandbox.Access, error) {
	if len(next.Values) == 0 {
		if next.Own != before.Own {
			next.Own = ""
		}
		return next, nil
	}
	next = NameValues(next)
	if err := s.Seal(ctx, id, next); err != nil {
		return sandbox.Access{}, err
	}
	next.Values = nil
	return next, nil
}

// Seal encrypts and stores the values of an access.
func (s *Service) Seal(ctx context.Context, id string, a sandbox.Access) error {
	if len(a.Values) == 0 {
		return nil
	}
	if s.deps.Sealed == nil {
		return noSecrets()
	}
	return s.deps.Sealed.Keep(ctx, id, a.Own, a.Values)
}

// DropValues removes a sandbox's own values, except those under one name.
func (s *Service) DropValues(ctx context.Context, id, except string) error {
	if s.deps.Sealed == nil {
		return nil
	}
	return s.deps.Sealed.Drop(ctx, id, except)
}
