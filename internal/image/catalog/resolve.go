package catalog

import (
	"context"
	"errors"
	"maps"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Templates are the templates of a catalog together with others.
type Templates struct {
	*Catalog
	others sandbox.Templates
}

// FollowedBy returns the templates of the catalog, followed by others.
func (c *Catalog) FollowedBy(others sandbox.Templates) *Templates { return &Templates{c, others} }

// Resolve implements sandbox.Templates. Only the template's owner may use the result.
func (t *Templates) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	all, err := t.files.list()
	if err != nil {
		return sandbox.Template{}, err
	}
	for _, one := range all {
		if one.matches(ref) {
			return t.resolve(ctx, one, ref)
		}
	}
	return t.others.Resolve(ctx, ref)
}

// ResolveImage implements sandbox.ImageTemplates.
func (t *Templates) ResolveImage(ctx context.Context, ref string, mayPull bool) (sandbox.Template, error) {
	return t.o.Library.ResolveImage(ctx, ref, mayPull)
}

// ResolveDigest implements sandbox.ImageTemplates.
func (t *Templates) ResolveDigest(ctx context.Context, digest string) (sandbox.Template, error) {
	return t.o.Library.ResolveDigest(ctx, digest)
}

// EngineImage implements sandbox.ImageTemplates.
func (t *Templates) EngineImage(image engine.FoundImage) sandbox.Template {
	return t.o.Library.EngineImage(image)
}

// resolve returns a version as the template of a sandbox.
func (c *Catalog) resolve(ctx context.Context, t Template, ref sandbox.Reference) (sandbox.Template, error) {
	v := t.tagged(ref.Tag)
	if v == nil {
		return sandbox.Template{}, sandbox.TagUnknown(ref)
	}
	out, err := c.o.Library.ResolveDigest(ctx, v.Digest)
	if fault.CodeOf(err) == sandbox.CodeImageMissing {
		return sandbox.Template{}, missing(t, *v, err)
	}
	if err != nil {
		return sandbox.Template{}, err
	}
	out.ID, out.Name, out.Owner = t.ID, t.Name, t.Owner
	out.Limits, out.Access, out.Start, out.Memory = v.Limits, v.Access, v.Start, v.Memory
	if v.User != "" {
		out.DefaultUser = v.User
	}
	if v.Dir != "" {
		out.DefaultDir = v.Dir
	}
	if len(v.Env) > 0 {
		env := maps.Clone(out.Env)
		if env == nil {
			env = map[string]string{}
		}
		maps.Copy(env, v.Env)
		out.Env = env
	}
	return out, nil
}

// missing returns an error that explains how to get the image of a version again.
func missing(t Template, v Version, cause error) error {
	err := fault.Newf(fault.Conflict, sandbox.CodeImageMissing, "the image of template %s, %s with the digest %s, is no longer on this machine", t.Name, v.Image, v.Digest)
	if known, ok := errors.AsType[*fault.Error](cause); ok {
		return err.WithHint(fault.HintOf(known) + "; or create a new version: crannog template create " + t.Name)
	}
	return err
}
