package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// archiveTimeout bounds a boot that unpacks files first.
const archiveTimeout = 10 * time.Minute

// source is the state from which an instance starts. The zero value is a first boot.
type source struct {
	savedstate.Source
	renew   guest.Renewal
	replace bool   // it replaces the instance with the same ID
	again   bool   // it is not the sandbox's first instance
	reading bool   // it only serves to read the saved files
	request string // the caller's name for the request
	// search searches the workspace of a new sandbox for keys, or is nil.
	search *rootfs.KeySearch
}

// fromSnapshot returns a snapshot as a source.
func fromSnapshot(n sandbox.Stored, renew guest.Renewal) source {
	return source{Source: savedstate.Source{Saved: n.SavedState()}, renew: renew, again: true}
}

// runOn makes the engine start the instance. dir holds saved memory, or is "".
func (b *boot) runOn(ctx context.Context, dir string) error {
	s, name := b.s, b.row.Engine
	e, err := s.engines.Of(name)
	if err != nil {
		return err
	}
	if dir == "" && !b.from.replace {
		return e.Create(ctx, b.spec)
	}
	c, err := savedstate.Checkpointer(s.engines.Registry, name)
	if err != nil {
		if dir == "" {
			return relaunch(ctx, e, b.spec)
		}
		return err
	}
	defer s.pool.Load().Restored(name, b.spec)
	if b.from.replace {
		return c.Replace(ctx, b.spec, dir)
	}
	return c.Restore(ctx, b.spec, dir)
}

// relaunch replaces an instance on an engine that restores no memory, and so has no such operation.
// The old instance has to end first, because an ID belongs to one instance.
func relaunch(ctx context.Context, e engine.Engine, spec engine.Spec) error {
	// Between the end and the start there is no instance, so the caller's departure must not stop
	// the replacement.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), archiveTimeout)
	defer cancel()
	if err := e.Remove(ctx, spec.ID); err != nil {
		return err
	}
	if err := e.Create(ctx, spec); err != nil {
		return fault.Wrap(err, fault.KindOf(err), codeReplaceFailed, fault.PublicText(err))
	}
	return nil
}
