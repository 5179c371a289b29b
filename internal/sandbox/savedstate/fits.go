package savedstate

import (
	"context"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// CheckFits refuses to let saved memory go on where it cannot.
func (s *Service) CheckFits(ctx context.Context, name, templateID string, b sandbox.Base, from sandbox.Saved) error {
	if err := b.CheckRebuildable(); err != nil || from.FilesOnly {
		return err
	}
	c, err := Checkpointer(s.deps.Engines, name)
	if err != nil {
		return err
	}
	if !c.Restores(from.Format) {
		return fault.Newf(fault.Conflict, "snapshot_format", "the state was saved in the format %q, and this engine does not restore it: its own is %q", from.Format, c.Format()).
			WithHint("one of files only would work: take it without memory where the sandbox runs, or use the version that saved this one")
	}
	return s.sameFiles(ctx, templateID, b, from.Needs)
}

// Renewed returns the base of an instance that restores no memory. It uses the current
// programs, of which the first is the guest.
func (s *Service) Renewed(ctx context.Context, templateID string, b sandbox.Base) (sandbox.Base, error) {
	t, err := s.deps.Templates.Resolve(ctx, sandbox.Reference{Name: templateID, Tag: sandbox.DefaultTag})
	if err != nil {
		return sandbox.Base{}, err
	}
	b.Image = b.Image.WithGuestOf(t.Image)
	programs, err := rootfs.Revision(b.Image)
	b.Revision, b.Knows = t.Revision+programs, sandbox.GuestKnows
	return b, err
}
