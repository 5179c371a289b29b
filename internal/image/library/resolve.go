package library

import (
	"context"
	"errors"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/image/root"
	"github.com/crannog/crannog/internal/sandbox"
)

// ResolveImage returns an image as the template of a sandbox. If the image is not on this machine
// and mayPull is set, it is pulled.
func (l *Library) ResolveImage(ctx context.Context, ref string, mayPull bool) (sandbox.Template, error) {
	if _, err := registry.Parse(ref); err != nil {
		return sandbox.Template{}, err
	}
	found, err := l.names.find(ref)
	if fault.KindOf(err) == fault.NotFound && mayPull {
		if _, err = l.Pull(ctx, ref, "", func(Progress) {}); err != nil {
			return sandbox.Template{}, err
		}
		found, err = l.names.find(ref)
	}
	if err != nil {
		return sandbox.Template{}, err
	}
	var t sandbox.Template
	err = l.withRoom(ctx, func() []v1.Hash { return l.blobsOf(found[0].Manifest) }, func() error {
		t, err = l.templateOf(ctx, ref, found[0])
		return err
	})
	return t, err
}

// templateOf returns the template of a named image, and unpacks the image if necessary. The caller
// holds the library's lock.
func (l *Library) templateOf(ctx context.Context, ref string, e entry) (sandbox.Template, error) {
	img, err := manifest.Load(l.blobs, e.Manifest)
	if err != nil {
		return sandbox.Template{}, err
	}
	if !forThisMachine(img) {
		return sandbox.Template{}, fault.Newf(fault.Unsupported, manifest.CodePlatform, "the image is for %s, and this machine is %s", img.Config.Platform(), manifest.Host().String()).
			WithHint("pull it for this machine: crannog image pull " + ref)
	}
	r, err := l.unpack(ctx, img, func(Progress) {})
	if err != nil {
		return sandbox.Template{}, err
	}
	return l.template(r, familiar(e.Name))
}

// ResolveDigest implements sandbox.ImageTemplates. It returns the template of the image
// whose manifest has this digest, and unpacks its layers if necessary.
func (l *Library) ResolveDigest(ctx context.Context, digest string) (sandbox.Template, error) {
	roots, err := l.roots.List()
	if err != nil {
		return sandbox.Template{}, err
	}
	for _, r := range roots {
		if r.Image.String() != digest {
			continue
		}
		if current, ok := l.roots.Find(r.Config); ok {
			r = current
		}
		return l.template(r, digest)
	}
	d, err := v1.NewHash(digest)
	if err != nil {
		return sandbox.Template{}, sandbox.ImageMissing(digest)
	}
	var t sandbox.Template
	err = l.withRoom(ctx, func() []v1.Hash { return l.blobsOf(d) }, func() error {
		img, err := manifest.Load(l.blobs, d)
		if isLost(err) {
			return sandbox.ImageMissing(digest)
		}
		if err != nil {
			return err
		}
		r, err := l.unpack(ctx, img, func(Progress) {})
		if err != nil {
			return err
		}
		t, err = l.template(r, digest)
		return err
	})
	return t, err
}

// Resolve implements sandbox.Templates for images. A resumed sandbox and a snapshot refer to their
// image by the ID of an unpacked tree. Clients of E2B's protocol, which know only templates, refer
// to an image of this machine by its name. No image is pulled.
func (l *Library) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	roots, err := l.roots.List()
	if err != nil {
		return sandbox.Template{}, err
	}
	for _, r := range roots {
		if root.TemplateID(r.Config) == ref.Name {
			return l.template(r, ref.Name)
		}
	}
	name := ref.Path() + ":" + ref.Tag
	if ref.Tag == sandbox.DefaultTag {
		name = ref.Path()
	}
	known, err := l.names.exists(name)
	if err != nil || !known {
		return sandbox.Template{}, errors.Join(err, sandbox.TemplateUnknown(ref))
	}
	return l.ResolveImage(ctx, name, false)
}

// template returns a sandbox template that starts from an unpacked image.
func (l *Library) template(r root.Root, name string) (sandbox.Template, error) {
	if err := l.roots.Touch(r); err != nil {
		return sandbox.Template{}, err
	}
	user, dir := account(r.User, r.Dir)
	image := l.imageOf(r)
	image.HostView.Packed = r.Packed(image.View())
	return sandbox.Template{
		ID: root.TemplateID(r.Config), Name: name, DefaultUser: user, DefaultDir: dir, Env: r.Env, Revision: r.Config.Hex, ImageDigest: r.Image.String(),
		Image: image, OCI: &engine.OCI{Ref: name, Digest: r.Config.String()},
	}, nil
}

// imageOf returns what sandboxes of a root show: its files and the guest's program.
func (l *Library) imageOf(r root.Root) engine.Image {
	image := engine.ViewOf(r.Tree(), root.GuestTarget, engine.Bind{Source: l.o.Guest, Target: root.GuestTarget})
	image.HostView.Owners = r.Owners()
	return image
}

// Templates are the images of a library together with other templates.
type Templates struct {
	*Library
	host sandbox.Templates
}

// PrecededBy returns the templates of this host, and the images of the library for names that the
// host does not know.
func (l *Library) PrecededBy(host sandbox.Templates) *Templates { return &Templates{l, host} }

// Resolve implements sandbox.Templates.
func (t *Templates) Resolve(ctx context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	found, err := t.host.Resolve(ctx, ref)
	if fault.KindOf(err) == fault.NotFound {
		if image, libErr := t.Library.Resolve(ctx, ref); libErr == nil || fault.KindOf(libErr) != fault.NotFound {
			return image, libErr
		}
	}
	return found, err
}
