package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// archiveTimeout bounds a boot that unpacks files first.
const archiveTimeout = 10 * time.Minute

// source is what an instance starts from. The zero value is a first boot.
type source struct {
	savedstate.Source
	renew   guest.Renewal
	replace bool   // the instance of the same ID
	again   bool   // it is not the first instance of the sandbox
	reading bool   // it is only made to read the saved files
	request string // what the caller calls the request
	// search looks for keys in the workspace of a sandbox that is being created, or is nil.
	search *rootfs.KeySearch
}

// fromSnapshot is the source that a snapshot is.
func fromSnapshot(n sandbox.Stored, renew guest.Renewal) source {
	return source{Source: savedstate.Source{Saved: n.SavedState()}, renew: renew, again: true}
}

// launch hands over to the engine. dir is saved memory, or "".
func (s *Service) launch(ctx context.Context, name string, spec engine.Spec, dir string, replace bool) error {
	if dir == "" && !replace {
		e, err := s.engines.Of(name)
		if err != nil {
			return err
		}
		return e.Create(ctx, spec)
	}
	c, err := savedstate.Checkpointer(s.engines.Registry, name)
	if err != nil {
		return err
	}
	defer s.pool.Load().Restored(name, spec)
	if replace {
		return c.Replace(ctx, spec, dir)
	}
	return c.Restore(ctx, spec, dir)
}
