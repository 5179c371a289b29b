package library

import (
	"context"
	"encoding/json"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/image/root"
)

// Blobs is the store of the library's blobs.
func (l *Library) Blobs() *blob.Store { return l.blobs }

// Limits bound one image.
func (l *Library) Limits() layer.Limits { return l.o.Limits }

// Hold prevents the removal of blobs to which no name refers yet, until release is called.
func (l *Library) Hold(ctx context.Context) (release func(), err error) { return l.hold(ctx, false) }

// KeepBlobs sets a function that returns the blobs that builds may use again. The library calls it
// before it removes blobs.
func (l *Library) KeepBlobs(keep func() (map[v1.Hash]bool, error)) { l.keep.Store(&keep) }

// Pin sets a function that returns the digests of the images that templates need. They are
// preserved completely, even without a name.
func (l *Library) Pin(pinned func() (map[v1.Hash]bool, error)) { l.pinned.Store(&pinned) }

// pins returns the digests of images that are needed without a name.
func (l *Library) pins() (map[v1.Hash]bool, error) {
	if pinned := l.pinned.Load(); pinned != nil {
		return (*pinned)()
	}
	return map[v1.Hash]bool{}, nil
}

// Has reports whether all blobs of an image are in the store.
func (l *Library) Has(digest v1.Hash) (bool, error) {
	img, err := manifest.Load(l.blobs, digest)
	if isLost(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	existing, err := l.blobs.List()
	if err != nil {
		return false, err
	}
	for _, d := range img.Blobs() {
		if _, ok := existing[d]; !ok {
			return false, nil
		}
	}
	return true, nil
}

// View returns an image for a sandbox that shows a directory as its root.
func (l *Library) View(tree string, binds ...engine.Bind) engine.Image {
	return engine.ViewOf(tree, root.GuestTarget, append([]engine.Bind{{Source: l.o.Guest, Target: root.GuestTarget}}, binds...)...)
}

// Base returns the base image of a build. If it is not on this machine and mayPull is set, it is
// pulled. It is not unpacked.
func (l *Library) Base(ctx context.Context, ref, platform string, mayPull bool) (manifest.Image, error) {
	p, err := manifest.ParsePlatform(platform)
	if err != nil {
		return manifest.Image{}, err
	}
	if p.Architecture != manifest.Host().Architecture {
		return manifest.Image{}, fault.Newf(fault.Unsupported, manifest.CodePlatform, "an image for %s cannot be built on this machine, which is %s", p.String(), manifest.Host().String())
	}
	named, err := registry.Parse(ref)
	if err != nil {
		return manifest.Image{}, err
	}
	release, err := l.hold(ctx, false)
	if err != nil {
		return manifest.Image{}, err
	}
	defer release()
	found, err := l.names.find(ref)
	if err == nil {
		return manifest.Load(l.blobs, found[0].Manifest)
	}
	if fault.KindOf(err) != fault.NotFound || !mayPull {
		return manifest.Image{}, err
	}
	pulled, err := l.registry.Pull(ctx, named, p, l.blobs, func(registry.Event) {})
	if err != nil {
		return manifest.Image{}, err
	}
	if err := l.names.put(entry{Name: named.Name(), Manifest: pulled.Manifest, Resolved: pulled.Resolved, Source: pulled.Source, Added: now()}); err != nil {
		return manifest.Image{}, err
	}
	return manifest.Load(l.blobs, pulled.Manifest)
}

// AddBuilt adds an image, given by a configuration and layers whose blobs are in the store, and
// gives it its name.
func (l *Library) AddBuilt(ctx context.Context, ref string, config *v1.ConfigFile, layers []v1.Descriptor, report func(Progress)) (Image, error) {
	named, err := registry.Parse(ref)
	if err != nil {
		return Image{}, err
	}
	release, err := l.hold(ctx, false)
	if err != nil {
		return Image{}, err
	}
	defer release()
	rawConfig, err := json.Marshal(config)
	if err != nil {
		return Image{}, err
	}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Size: int64(len(rawConfig))}, Layers: []v1.Descriptor{}}
	for _, d := range layers {
		// Docker's media type of a layer stands for the same bytes.
		switch d.MediaType { //nolint:exhaustive // other types stay as they are
		case types.DockerLayer:
			d.MediaType = types.OCILayer
		case types.DockerUncompressedLayer:
			d.MediaType = types.OCIUncompressedLayer
		}
		m.Layers = append(m.Layers, v1.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
	}
	if m.Config.Digest, err = l.blobs.Put(rawConfig); err != nil {
		return Image{}, err
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return Image{}, err
	}
	digest, err := l.blobs.Put(raw)
	if err != nil {
		return Image{}, err
	}
	return l.add(ctx, entry{Name: named.Name(), Manifest: digest, Resolved: digest, Source: SourceBuild}, report)
}
