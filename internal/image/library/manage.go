package library

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/archive"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/registry"
)

// List returns all images, sorted by name.
func (l *Library) List() ([]Image, error) {
	entries, err := l.names.list()
	if err != nil {
		return nil, err
	}
	list := make([]Image, 0, len(entries))
	for _, e := range entries {
		img, err := l.describe(e)
		if isLost(err) {
			// Such an image is listed, so that a person can remove or pull it.
			img = Image{Name: familiar(e.Name), Digest: e.Manifest, Source: e.Source, Added: e.Added}
		} else if err != nil {
			return nil, err
		}
		list = append(list, img)
	}
	return list, nil
}

// isLost reports whether an error means that blobs of an image are missing.
func isLost(err error) bool {
	return slices.Contains([]string{blob.CodeUnknown, blob.CodeCorrupt}, fault.CodeOf(err))
}

// Inspect describes one image, by its name or the beginning of its digest.
func (l *Library) Inspect(ref string) (Image, error) {
	found, err := l.names.find(ref)
	if err != nil {
		return Image{}, err
	}
	out, err := l.describe(found[0])
	if err == nil && len(out.Layers) == 1 && out.Root == nil {
		out.Feature, err = l.featureDescription(found[0].Manifest)
	}
	return out, err
}

// pushTarget returns an image and the reference under which it is, or will be, in a registry: to, or
// its own name if to is empty.
func (l *Library) pushTarget(ref, to string) (name.Reference, manifest.Image, error) {
	found, err := l.names.find(ref)
	if err != nil {
		return nil, manifest.Image{}, err
	}
	target, err := registry.Parse(cmp.Or(to, found[0].Name))
	if err != nil {
		return nil, manifest.Image{}, err
	}
	img, err := manifest.Load(l.blobs, found[0].Manifest)
	return target, img, err
}

// Push sends an image to the registry of its name, or of another name.
func (l *Library) Push(ctx context.Context, ref, to string, report func(Progress)) error {
	release, err := l.hold(ctx, false)
	if err != nil {
		return err
	}
	defer release()
	target, img, err := l.pushTarget(ref, to)
	if err != nil {
		return err
	}
	return l.registry.Push(ctx, target, img, l.blobs, func(e registry.Event) {
		report(Progress{Stage: StagePush, Done: e.Done, Total: e.Total})
	})
}

// Import reads images from a file of this host. as is the name for the image if the archive has
// only one; "" uses the names in the archive.
func (l *Library) Import(ctx context.Context, from, as, platform string, report func(Progress)) ([]Image, error) {
	p, err := manifest.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	var found []archive.Imported
	var list []Image
	keep := func() (blobs []v1.Hash) {
		for _, one := range found {
			blobs = append(blobs, l.blobsOf(one.Manifest)...)
		}
		return blobs
	}
	err = l.withRoom(ctx, keep, func() error {
		if found == nil {
			if found, err = archive.Import(ctx, from, p, l.blobs); err != nil {
				return err
			}
		}
		list, err = l.addAll(ctx, found, as, report)
		return err
	})
	return list, err
}

// addAll gives the images of an archive their names.
func (l *Library) addAll(ctx context.Context, found []archive.Imported, as string, report func(Progress)) ([]Image, error) {
	if as != "" {
		if len(found) != 1 {
			return nil, fault.Newf(fault.Invalid, archive.CodeInvalid, "the archive has %d images, but only one name was given", len(found))
		}
		found[0].Names = []string{as}
	}
	var list []Image
	for _, one := range found {
		if len(one.Names) == 0 {
			return nil, fault.New(fault.Invalid, "image_unnamed", "the image in the archive has no name").WithHint("give it one: --name NAME:TAG")
		}
		for _, text := range one.Names {
			named, err := registry.Parse(text)
			if err != nil {
				return nil, err
			}
			img, err := l.add(ctx, entry{Name: named.Name(), Manifest: one.Manifest, Resolved: one.Manifest, Source: SourceFile}, report)
			if err != nil {
				return nil, err
			}
			list = append(list, img)
		}
	}
	return list, nil
}

// Export writes an image as a tar.
func (l *Library) Export(ctx context.Context, ref, format string, w io.Writer) error {
	release, err := l.hold(ctx, false)
	if err != nil {
		return err
	}
	defer release()
	found, err := l.names.find(ref)
	if err != nil {
		return err
	}
	named, err := name.ParseReference(found[0].Name)
	if err != nil {
		return err
	}
	img, err := manifest.Load(l.blobs, found[0].Manifest)
	if err != nil {
		return err
	}
	return archive.Export(ctx, w, img, named, format, l.blobs)
}

// Remove removes a name, or all names of a digest, and frees space that is no longer needed. Files
// that a sandbox needs stay until it has ended.
func (l *Library) Remove(ctx context.Context, ref string) ([]string, error) {
	found, err := l.names.find(ref)
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, e := range found {
		if err := l.step("forget"); err != nil {
			return removed, err
		}
		existed, err := l.names.remove(e.Name)
		if err != nil {
			return removed, err
		}
		if existed {
			removed = append(removed, familiar(e.Name))
		}
	}
	_, err = l.Prune(ctx)
	return removed, err
}
