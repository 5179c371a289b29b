package library

import (
	"cmp"
	"context"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/image/archive"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/root"
	"github.com/crannog/crannog/internal/sandbox"
)

// account returns the user and the working directory of an image's programs.
func account(user, dir string) (string, string) { return cmp.Or(user, "root"), cmp.Or(dir, "/") }

// EngineImage implements sandbox.ImageTemplates.
func (l *Library) EngineImage(image engine.FoundImage) sandbox.Template {
	user, dir := account(image.User, image.Dir)
	t := sandbox.Template{
		Name: image.OCI.Ref, DefaultUser: user, DefaultDir: dir, Env: image.Env, Revision: image.OCI.Digest, ImageDigest: image.OCI.Digest,
		Image: engine.Image{OCI: &image.OCI, Guest: root.GuestTarget}, OCI: &image.OCI,
	}
	if digest, err := v1.NewHash(image.OCI.Digest); err == nil {
		t.ID = root.TemplateID(digest)
	}
	return t
}

// ImageView returns the unpacked files of an image, for an engine that makes a disk of them.
func (l *Library) ImageView(_ context.Context, image engine.OCI) (engine.HostView, error) {
	digest, err := v1.NewHash(image.Digest)
	if err != nil {
		return engine.HostView{}, sandbox.ImageMissing(image.Ref)
	}
	r, known := l.roots.Find(digest)
	if !known {
		return engine.HostView{}, sandbox.ImageMissing(image.Ref)
	}
	t, err := l.template(r, image.Ref)
	if err != nil {
		return engine.HostView{}, err
	}
	return t.Image.View(), nil
}

// ExportTo writes an image as docker save does, under a name that the caller chooses. The image is
// found by its configuration, because its own name may refer to another image by now.
func (l *Library) ExportTo(ctx context.Context, image engine.OCI, as string, w io.Writer) error {
	release, err := l.hold(ctx, false)
	if err != nil {
		return err
	}
	defer release()
	named, err := name.NewTag(as)
	if err != nil {
		return err
	}
	entries, err := l.names.list()
	if err != nil {
		return err
	}
	for _, e := range entries {
		img, err := manifest.Load(l.blobs, e.Manifest)
		if err == nil && img.Manifest.Config.Digest.String() == image.Digest {
			return archive.Export(ctx, w, img, named, archive.Docker, l.blobs)
		}
	}
	return Unknown(image.Ref)
}
