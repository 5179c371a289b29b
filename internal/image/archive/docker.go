package archive

import (
	"context"
	"errors"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog/internal/image/blob"
)

// dockerImage opens one image of a docker-archive. If there are several, it is selected by one of
// its tags.
func dockerImage(opener tarball.Opener, d tarball.Descriptor) (v1.Image, error) {
	if len(d.RepoTags) == 0 {
		return tarball.Image(opener, nil) // an archive with one image that has no name
	}
	tag, err := name.NewTag(d.RepoTags[0])
	if err != nil {
		return nil, err
	}
	return tarball.Image(opener, &tag)
}

// putLayer stores a layer.
func putLayer(ctx context.Context, l v1.Layer, blobs *blob.Store) error {
	d, err := l.Digest()
	if err != nil {
		return err
	}
	size, err := l.Size()
	if err != nil {
		return err
	}
	r, err := l.Compressed()
	if err != nil {
		return err
	}
	return errors.Join(put(ctx, blobs, d, size, r), r.Close())
}
