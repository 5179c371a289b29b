package volumes

import (
	"context"
	"crypto/subtle"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/volume"
)

// use is a sandbox with a volume.
type use struct {
	row   sandbox.Row
	mount sandbox.VolumeMount
}

func sandboxIDs(list []use) (out []string) {
	for _, u := range list {
		out = append(out, u.row.ID)
	}
	return out
}

// users returns the sandboxes that have each volume. Ended sandboxes do not count.
func (s *Service) users(ctx context.Context) (map[string][]use, error) {
	rows, err := s.rows.List(ctx, sandbox.Query{AllOwners: true})
	if err != nil {
		return nil, err
	}
	used := map[string][]use{}
	for _, r := range rows {
		if r.State == sandbox.Stopped {
			continue
		}
		for _, m := range r.Base.Volumes {
			used[m.ID] = append(used[m.ID], use{r, m})
		}
	}
	return used, nil
}

// checkUnused returns an error if a sandbox uses the volume in a way for which conflicts reports
// true.
func (s *Service) checkUnused(ctx context.Context, v volume.Volume, conflicts func(sandbox.Row, sandbox.VolumeMount) bool) error {
	used, err := s.users(ctx)
	if err != nil {
		return err
	}
	for _, u := range used[v.ID] {
		if conflicts(u.row, u.mount) {
			return fault.Newf(fault.Conflict, "volume_in_use", "the sandbox %s has the volume %q", u.row.ID, v.Name).
				WithHint("end the sandbox first: crannog rm " + u.row.ID)
		}
	}
	return nil
}

// Resolve implements sandbox.Volumes.
func (s *Service) Resolve(who sandbox.Principal, name string) (id string, err error) {
	v, err := s.find(who, name)
	return v.ID, err
}

// Attach implements sandbox.Volumes.
func (s *Service) Attach(id string) (dir string, err error) { return s.store.Attach(id) }

// ByToken returns the owner of the volume that a token opens. All invalid tokens and unknown
// volumes give the same error.
func (s *Service) ByToken(id, token string) (sandbox.Principal, error) {
	v, err := s.store.Get(id)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return sandbox.Principal{}, err
	}
	if err != nil || v.Owner == "" || subtle.ConstantTimeCompare([]byte(v.Token), []byte(token)) != 1 {
		return sandbox.Principal{}, fault.New(fault.Unauthenticated, "volume_token_invalid", "the token opens no such volume")
	}
	return sandbox.Principal{KeyID: v.Owner}, nil
}
