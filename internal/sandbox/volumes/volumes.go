// Package volumes owns the permissions and the use of volumes: which callers may use a volume, and
// which sandboxes have it. It writes an audit entry for each change.
package volumes

import (
	"context"
	"log/slog"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/state/volume"
)

// Both packages must use the same user ID: if the IDs differ, one of these constants does not
// compile.
const (
	_ = uint(volume.UserID - engine.UserID)
	_ = uint(engine.UserID - volume.UserID)
)

// Service manages the volumes of a state directory for callers. A key sees only its own volumes; a
// local caller sees all.
type Service struct {
	store  *volume.Store
	rows   sandbox.Listing
	audit  *auditlog.Log
	log    *slog.Logger
	budget int64
}

// Deps is what a Service needs.
type Deps struct {
	Store *volume.Store
	Rows  sandbox.Listing
	Audit *auditlog.Log
	Log   *slog.Logger
	// Budget limits the total size of the volumes of each key; zero is DefaultBudget.
	Budget int64
}

// DefaultBudget is the total size of the volumes of a key unless the operator sets another.
const DefaultBudget = 20 << 30

// New returns a Service. It also removes incomplete changes of processes that died.
func New(d Deps) (*Service, error) {
	if d.Budget == 0 {
		d.Budget = DefaultBudget
	}
	return &Service{d.Store, d.Rows, d.Audit, d.Log, d.Budget}, d.Store.Sweep()
}

// Close unmounts the volumes that no sandbox uses.
func (s *Service) Close(ctx context.Context) error {
	return s.store.Release(func() (func(id string) bool, error) {
		used, err := s.users(ctx)
		return func(id string) bool { return len(used[id]) > 0 }, err
	})
}

// Info describes a volume with its use.
type Info struct {
	volume.Volume
	Usage     *volume.Usage // nil in lists
	Sandboxes []string      // IDs of the sandboxes that have it, also paused ones
}

// Request describes a new volume.
type Request struct {
	Name         string
	Bytes, Files int64
	Unlimited    bool // local callers only
}

func maySee(who sandbox.Principal, v volume.Volume) bool {
	return who.Local || who.KeyID != "" && who.KeyID == v.Owner
}

// find returns a volume by its name or ID. A name of the caller's own volume comes first.
func (s *Service) find(who sandbox.Principal, ref string) (volume.Volume, error) {
	if err := who.Check(); err != nil {
		return volume.Volume{}, err
	}
	list, err := s.store.List()
	if err != nil {
		return volume.Volume{}, err
	}
	var found []volume.Volume
	for _, v := range list {
		if !maySee(who, v) {
			continue
		}
		if v.ID == ref || v.Name == ref && v.Owner == who.KeyID {
			return v, nil
		}
		if v.Name == ref {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 0:
		return volume.Volume{}, fault.Newf(fault.NotFound, "volume_not_found", "there is no volume %.100q", ref).
			WithHint("crannog volume ls lists the volumes, crannog volume create NAME creates one")
	case 1:
		return found[0], nil
	}
	return volume.Volume{}, fault.Newf(fault.Invalid, "volume_ambiguous", "several keys have a volume %.100q", ref).
		WithHint("use its ID: crannog volume ls --json")
}

// List returns the volumes that a caller may see.
func (s *Service) List(ctx context.Context, who sandbox.Principal) ([]Info, error) {
	if err := who.Check(); err != nil {
		return nil, err
	}
	list, err := s.store.List()
	if err != nil {
		return nil, err
	}
	used, err := s.users(ctx)
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, v := range list {
		if maySee(who, v) {
			out = append(out, Info{Volume: v, Sandboxes: sandboxIDs(used[v.ID])})
		}
	}
	return out, nil
}

// Inspect describes a volume.
func (s *Service) Inspect(ctx context.Context, who sandbox.Principal, ref string) (Info, error) {
	v, err := s.find(who, ref)
	if err != nil {
		return Info{}, err
	}
	used, err := s.users(ctx)
	if err != nil {
		return Info{}, err
	}
	u, err := s.store.Usage(v)
	return Info{Volume: v, Usage: &u, Sandboxes: sandboxIDs(used[v.ID])}, err
}

// Find returns a volume with its token.
func (s *Service) Find(who sandbox.Principal, ref string) (volume.Volume, error) {
	return s.find(who, ref)
}

// Create creates an empty volume.
func (s *Service) Create(ctx context.Context, who sandbox.Principal, req Request) (volume.Volume, error) {
	ctx, action := s.audit.Begin(ctx, who.Actor(), "volume.create", req.Name)
	v, err := s.create(ctx, who, req)
	return v, s.commit(ctx, action, v, err)
}

// commit writes the entry of a new volume, and removes the volume if that fails.
func (s *Service) commit(ctx context.Context, action *auditlog.Action, v volume.Volume, err error) error {
	if commitErr := action.Commit(ctx, err); commitErr != nil {
		if err == nil {
			if removeErr := s.store.Remove(v.ID, func() error { return nil }); removeErr != nil {
				s.log.Error("a volume without an audit entry is left", "volume", v.ID, "err", removeErr)
			}
		}
		return commitErr
	}
	return nil
}

func (s *Service) create(ctx context.Context, who sandbox.Principal, req Request) (volume.Volume, error) {
	if err := who.Check(); err != nil {
		return volume.Volume{}, err
	}
	if req.Unlimited && !who.OnHost() {
		return volume.Volume{}, fault.New(fault.Denied, "local_only", "only a local caller may request a volume without a quota")
	}
	return s.store.Create(ctx, volume.Request{
		Name: req.Name, Owner: who.KeyID, Bytes: req.Bytes, Files: req.Files, Unlimited: req.Unlimited, Budget: s.budgetOf(who),
	})
}

// budgetOf returns the limit of the total size of a caller's volumes.
func (s *Service) budgetOf(who sandbox.Principal) int64 {
	if who.Local {
		return 0
	}
	return s.budget
}

// Remove removes a volume that no sandbox has.
func (s *Service) Remove(ctx context.Context, who sandbox.Principal, ref string) error {
	ctx, action := s.audit.Begin(ctx, who.Actor(), "volume.remove", ref)
	v, err := s.find(who, ref)
	if err == nil {
		err = s.store.Remove(v.ID, func() error {
			return s.checkUnused(ctx, v, func(sandbox.Row, sandbox.VolumeMount) bool { return true })
		})
	}
	return action.Finish(ctx, err)
}

// Snapshot creates a volume with the present content of another one. No running sandbox may
// have the other one mounted writable.
func (s *Service) Snapshot(ctx context.Context, who sandbox.Principal, ref, name string) (volume.Volume, error) {
	ctx, action := s.audit.Begin(ctx, who.Actor(), "volume.snapshot", ref)
	v, err := s.find(who, ref)
	if err == nil && !v.Enforced() && !who.OnHost() {
		err = fault.New(fault.Denied, "local_only", "only a local caller may copy a volume without a quota")
	}
	if err == nil {
		v, err = s.store.Snapshot(ctx, v.ID, volume.Request{Name: name, Owner: who.KeyID, Budget: s.budgetOf(who)}, func() error {
			return s.checkUnused(ctx, v, func(r sandbox.Row, m sandbox.VolumeMount) bool { return r.State != sandbox.Paused && !m.ReadOnly })
		})
	}
	return v, s.commit(ctx, action, v, err)
}

// Files opens the files of a volume for reading.
func (s *Service) Files(who sandbox.Principal, ref string) (*volume.Files, error) {
	v, err := s.find(who, ref)
	if err != nil {
		return nil, err
	}
	return s.store.Files(v.ID)
}

// Change opens the files of a volume and writes one audit entry for the change that do makes.
func (s *Service) Change(ctx context.Context, who sandbox.Principal, what, ref string, do func(*volume.Files) error) error {
	ctx, action := s.audit.Begin(ctx, who.Actor(), "volume."+what, ref)
	files, err := s.Files(who, ref)
	if err == nil {
		defer files.Close()
		err = do(files)
	}
	return action.Finish(ctx, err)
}
