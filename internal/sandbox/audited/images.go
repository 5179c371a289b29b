package audited

import (
	"context"

	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Images is the machine's library of images for callers: what changes it, and what sends
// an image away, has one entry in the audit log.
type Images struct {
	*library.Library
	log *auditlog.Log
}

// Images returns the library for callers.
func (s *Service) Images(of *library.Library) *Images { return NewImages(of, s.log) }

// NewImages returns a library whose changes are written into an audit log.
func NewImages(of *library.Library, log *auditlog.Log) *Images { return &Images{of, log} }

// Pull fetches an image from a registry.
func (i *Images) Pull(ctx context.Context, who sandbox.Principal, ref, platform string, report func(library.Progress)) (library.Image, error) {
	ctx, a := i.log.Begin(ctx, who.Actor(), "image.pull", ref)
	img, err := i.Library.Pull(ctx, ref, platform, report)
	return img, a.Finish(ctx, err)
}

// Push sends an image to a registry. The entry has where it went to.
func (i *Images) Push(ctx context.Context, who sandbox.Principal, ref, to string, report func(library.Progress)) error {
	target := to
	if target == "" {
		target = ref
	}
	ctx, a := i.log.Begin(ctx, who.Actor(), "image.push", target)
	return a.Finish(ctx, i.Library.Push(ctx, ref, to, report))
}

// Import reads images from a file of the host.
func (i *Images) Import(ctx context.Context, who sandbox.Principal, from, as, platform string, report func(library.Progress)) ([]library.Image, error) {
	ctx, a := i.log.Begin(ctx, who.Actor(), "image.import", from)
	list, err := i.Library.Import(ctx, from, as, platform, report)
	return list, a.Finish(ctx, err)
}

// Remove forgets the names of an image.
func (i *Images) Remove(ctx context.Context, who sandbox.Principal, ref string) ([]string, error) {
	ctx, a := i.log.Begin(ctx, who.Actor(), "image.remove", ref)
	gone, err := i.Library.Remove(ctx, ref)
	return gone, a.Finish(ctx, err)
}

// Prune frees what no image, sandbox or snapshot needs.
func (i *Images) Prune(ctx context.Context, who sandbox.Principal) (library.Pruned, error) {
	ctx, a := i.log.Begin(ctx, who.Actor(), "image.prune", "")
	done, err := i.Library.Prune(ctx)
	return done, a.Finish(ctx, err)
}
