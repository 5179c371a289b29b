package library

import (
	"cmp"
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Audited is a Library for callers. Each request that changes it, or pushes an image, creates one
// audit entry that names the caller.
type Audited struct {
	*Library
	log *auditlog.Log
}

// NewAudited returns a library whose changes are recorded in an audit log.
func NewAudited(l *Library, log *auditlog.Log) *Audited { return &Audited{l, log} }

// Pull fetches an image from a registry.
func (a *Audited) Pull(ctx context.Context, caller sandbox.Principal, ref, platform string, report func(Progress)) (Image, error) {
	ctx, action := a.log.Begin(ctx, caller.Actor(), "image.pull", ref)
	img, err := a.Library.Pull(ctx, ref, platform, report)
	return img, action.Finish(ctx, err)
}

// Push sends an image to a registry. The audit entry has the destination.
func (a *Audited) Push(ctx context.Context, caller sandbox.Principal, ref, to string, report func(Progress)) error {
	ctx, action := a.log.Begin(ctx, caller.Actor(), "image.push", cmp.Or(to, ref))
	return action.Finish(ctx, a.Library.Push(ctx, ref, to, report))
}

// Attach sends a file about an image to a registry. The audit entry has the destination.
func (a *Audited) Attach(ctx context.Context, caller sandbox.Principal, ref, to, path, mediaType string) (v1.Hash, error) {
	ctx, action := a.log.Begin(ctx, caller.Actor(), "image.attach", cmp.Or(to, ref))
	digest, err := a.Library.Attach(ctx, ref, to, path, mediaType)
	return digest, action.Finish(ctx, err)
}

// Import reads images from a file of the host.
func (a *Audited) Import(ctx context.Context, caller sandbox.Principal, from, as, platform string, report func(Progress)) ([]Image, error) {
	ctx, action := a.log.Begin(ctx, caller.Actor(), "image.import", from)
	list, err := a.Library.Import(ctx, from, as, platform, report)
	return list, action.Finish(ctx, err)
}

// Remove removes the names of an image.
func (a *Audited) Remove(ctx context.Context, caller sandbox.Principal, ref string) ([]string, error) {
	ctx, action := a.log.Begin(ctx, caller.Actor(), "image.remove", ref)
	removed, err := a.Library.Remove(ctx, ref)
	return removed, action.Finish(ctx, err)
}

// Prune removes files that no image, sandbox or snapshot needs.
func (a *Audited) Prune(ctx context.Context, caller sandbox.Principal) (Pruned, error) {
	ctx, action := a.log.Begin(ctx, caller.Actor(), "image.prune", "")
	done, err := a.Library.Prune(ctx)
	return done, action.Finish(ctx, err)
}
