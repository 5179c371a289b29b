package registry

import (
	"context"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/manifest"
)

// openToPush opens the repository of a reference for pushing, if the rules allow that.
func (c *Client) openToPush(ctx context.Context, ref name.Reference) (*repository, error) {
	if err := c.o.Rules.check(ref.Context()); err != nil {
		return nil, err
	}
	return c.open(ctx, ref.Context(), toPush)
}

// Push sends an image of the store to the registry in a reference.
func (c *Client) Push(ctx context.Context, ref name.Reference, img manifest.Image, blobs *blob.Store, report func(Event)) error {
	repo, err := c.openToPush(ctx, ref)
	if err != nil {
		return err
	}
	target := name.Reference(repo.Tag(ref.Identifier()))
	if _, digest := ref.(name.Digest); digest {
		target = repo.Digest(ref.Identifier())
	}
	stored, err := Stored(img, blobs)
	if err != nil {
		return err
	}
	updates := make(chan v1.Update, 16)
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		for u := range updates {
			if u.Error == nil {
				report(Event{Digest: img.Digest, Done: u.Complete, Total: u.Total})
			}
		}
	}()
	err = remote.Write(target, stored, remote.WithContext(ctx), remote.WithTransport(repo.transport), remote.WithProgress(updates), remote.WithJobs(c.o.Parallel))
	<-reported // remote.Write closes the channel
	if err != nil {
		return explain(ctx, Familiar(ref), err)
	}
	return nil
}

// Stored returns an image of the store as an image of the registry library.
func Stored(img manifest.Image, blobs *blob.Store) (v1.Image, error) {
	return partial.CompressedToImage(storedImage{img, blobs})
}

// storedImage implements partial.CompressedImageCore.
type storedImage struct {
	img   manifest.Image
	blobs *blob.Store
}

// RawConfigFile implements partial.CompressedImageCore.
func (s storedImage) RawConfigFile() ([]byte, error) {
	return s.blobs.Read(s.img.Manifest.Config.Digest, manifest.MaxManifest)
}

// MediaType implements partial.CompressedImageCore.
func (s storedImage) MediaType() (types.MediaType, error) {
	if s.img.Manifest.MediaType == "" {
		return types.OCIManifestSchema1, nil
	}
	return s.img.Manifest.MediaType, nil
}

// RawManifest implements partial.CompressedImageCore.
func (s storedImage) RawManifest() ([]byte, error) { return s.img.Raw, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (s storedImage) LayerByDigest(d v1.Hash) (partial.CompressedLayer, error) {
	if d == s.img.Manifest.Config.Digest {
		return storedLayer{s.img.Manifest.Config, s.blobs}, nil
	}
	for _, l := range s.img.Manifest.Layers {
		if l.Digest == d {
			return storedLayer{l, s.blobs}, nil
		}
	}
	return nil, fmt.Errorf("the image has no layer %s", d)
}

// storedLayer implements partial.CompressedLayer.
type storedLayer struct {
	d     v1.Descriptor
	blobs *blob.Store
}

// Digest implements partial.CompressedLayer.
func (l storedLayer) Digest() (v1.Hash, error) { return l.d.Digest, nil }

// Compressed implements partial.CompressedLayer.
func (l storedLayer) Compressed() (io.ReadCloser, error) { return l.blobs.Open(l.d.Digest) }

// Size implements partial.CompressedLayer.
func (l storedLayer) Size() (int64, error) { return l.d.Size, nil }

// MediaType implements partial.CompressedLayer.
func (l storedLayer) MediaType() (types.MediaType, error) { return l.d.MediaType, nil }
