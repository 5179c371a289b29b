package savedstate

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// CheckFits returns an error if saved memory cannot be restored here.
func (s *Service) CheckFits(ctx context.Context, name, templateID string, b sandbox.Base, from sandbox.Saved) error {
	if err := b.CheckRebuildable(); err != nil || from.FilesOnly {
		return err
	}
	c, err := Checkpointer(s.deps.Engines, name)
	if err != nil {
		return err
	}
	if !c.Restores(from.Format) {
		return fault.Newf(fault.Conflict, "snapshot_format", "the state was saved in the format %q, and this engine restores only the format %q", from.Format, c.Format()).
			WithHint("save a state without memory while the sandbox runs, or use the version that saved this one")
	}
	if b.ImageDigest != "" {
		if _, err := os.Stat(b.Image.View().Dir); errors.Is(err, fs.ErrNotExist) {
			// Its files may still be available as the image's layers.
			if _, err := sandbox.TemplateOf(ctx, s.deps.Templates, templateID, b); err != nil {
				return err
			}
		}
	}
	return s.checkHostFiles(ctx, templateID, b, from.Needs)
}

// Renewed returns the base of an instance that restores no memory. It uses the current programs,
// including the guest.
func (s *Service) Renewed(ctx context.Context, templateID string, b sandbox.Base) (sandbox.Base, error) {
	t, err := sandbox.TemplateOf(ctx, s.deps.Templates, templateID, b)
	if err != nil {
		return sandbox.Base{}, err
	}
	b.Image = b.Image.WithGuestOf(t.Image)
	programs, err := rootfs.Revision(b.Image)
	b.Revision, b.Knows = t.Revision+programs, sandbox.GuestKnows
	return b, err
}
