package library

import (
	"archive/tar"
	"errors"
	"io"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/manifest"
)

// CodeFeature is the code of the error for a feature that is used like an image with programs.
const CodeFeature = "image_feature"

// Limits of a feature: bytes of its description, and entries of its archive that are searched for
// it.
const (
	maxDescription = 256 << 10
	maxEntries     = 10_000
)

// featureDescription reads the devcontainer-feature.json of a feature from its archive. It returns
// nil for an image with programs.
func (l *Library) featureDescription(digest v1.Hash) ([]byte, error) {
	img, err := manifest.Load(l.blobs, digest)
	if err != nil || !img.Feature() {
		return nil, err
	}
	f, err := l.blobs.Open(img.Manifest.Layers[0].Digest)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plain, err := layer.Uncompress(f)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	// A small archive may unpack to very much, of which only a part is read.
	text, err := findDescription(io.LimitReader(plain, l.o.Limits.Bytes))
	if err == nil {
		// The store compares the digest at the end of the archive.
		_, err = io.Copy(io.Discard, f)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, manifest.CodeInvalid, "the feature cannot be used: its archive has no readable devcontainer-feature.json")
	}
	return text, nil
}

func findDescription(r io.Reader) ([]byte, error) {
	archive := tar.NewReader(r)
	for range maxEntries {
		h, err := archive.Next()
		if err != nil {
			return nil, err
		}
		if path.Clean(h.Name) != "devcontainer-feature.json" {
			continue
		}
		if h.Typeflag != tar.TypeReg || h.Size > maxDescription {
			return nil, errors.New("it is not a regular file, or too large")
		}
		return io.ReadAll(archive)
	}
	return nil, errors.New("the archive has too many files")
}
