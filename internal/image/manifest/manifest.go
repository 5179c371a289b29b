// Package manifest owns the checks of an image's manifest and configuration, which are not trusted,
// before anything is downloaded or created because of them.
package manifest

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
)

// Limits of an image: documents, layers, and bytes of one layer.
const (
	MaxManifest = 4 << 20 // bytes of a manifest, an index or a configuration
	maxLayers   = 500
	maxBlob     = 1 << 40
)

// Codes of errors that callers distinguish.
const (
	CodeInvalid  = "image_invalid"
	CodePlatform = "image_platform_missing"
)

// Image is an image in the blob store, as its manifest describes it.
type Image struct {
	Digest   v1.Hash
	Raw      []byte // the manifest
	Manifest *v1.Manifest
	Config   *v1.ConfigFile
}

// Bytes is the total size of the image's blobs.
func (i Image) Bytes() int64 {
	total := int64(len(i.Raw)) + i.Manifest.Config.Size
	for _, l := range i.Manifest.Layers {
		total += l.Size
	}
	return total
}

// Blobs lists all blobs of the image: its manifest, its configuration and its layers.
func (i Image) Blobs() []v1.Hash {
	list := []v1.Hash{i.Digest, i.Manifest.Config.Digest}
	for _, l := range i.Manifest.Layers {
		list = append(list, l.Digest)
	}
	return list
}

// Parse parses and checks the manifest of an image.
func Parse(raw []byte) (*v1.Manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the manifest of the image cannot be read")
	}
	switch {
	case !m.Config.MediaType.IsConfig() && !isFeature(m):
		return nil, invalid("it contains %.100q, which is not an image with programs", string(m.Config.MediaType))
	case len(m.Layers) > maxLayers:
		return nil, invalid("it has %d layers, above the limit of %d", len(m.Layers), maxLayers)
	case m.Config.Size <= 0 || m.Config.Size > MaxManifest:
		return nil, invalid("its configuration has %d bytes, above the limit of %d", m.Config.Size, MaxManifest)
	}
	for _, l := range m.Layers {
		if !l.MediaType.IsLayer() && (l.MediaType != featureLayer || !isFeature(m)) {
			return nil, invalid("the layer %s is of the unknown type %.100q", l.Digest, string(l.MediaType))
		}
		if l.Size < 0 || l.Size > maxBlob || isFeature(m) && l.Size > maxFeature {
			return nil, invalid("the layer %s states a size of %d bytes", l.Digest, l.Size)
		}
	}
	return m, nil
}

// invalid returns the error for an image that cannot be used.
func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, CodeInvalid, "the image cannot be used: "+fmt.Sprintf(format, args...))
}

// IsIndex reports whether a document lists images of several platforms.
func IsIndex(mediaType types.MediaType) bool { return mediaType.IsIndex() }

// Load reads an image whose blobs are in the store.
func Load(blobs *blob.Store, digest v1.Hash) (Image, error) {
	raw, err := blobs.Read(digest, MaxManifest)
	if err != nil {
		return Image{}, err
	}
	m, err := Parse(raw)
	if err != nil {
		return Image{}, err
	}
	config, err := blobs.Read(m.Config.Digest, MaxManifest)
	if err != nil {
		return Image{}, err
	}
	i := Image{Digest: digest, Raw: raw, Manifest: m}
	i.Config, err = parseConfig(config, m)
	return i, err
}

// parseConfig parses a configuration and compares it with the manifest.
func parseConfig(raw []byte, m *v1.Manifest) (*v1.ConfigFile, error) {
	if isFeature(m) {
		return featureConfig(m), nil
	}
	c, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the configuration of the image cannot be read")
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) {
		return nil, invalid("its configuration names %d layers, and its manifest %d", len(c.RootFS.DiffIDs), len(m.Layers))
	}
	if c.OS != "" && c.OS != "linux" {
		return nil, fault.Newf(fault.Unsupported, CodePlatform, "the image is for %.50s, and sandboxes run Linux", c.OS)
	}
	return c, nil
}

// Platform is an operating system and processor architecture.
type Platform = v1.Platform

// Host is the platform of this machine's sandboxes.
func Host() Platform { return Platform{OS: "linux", Architecture: runtime.GOARCH} }

// ParsePlatform reads OS/ARCHITECTURE[/VARIANT]; "" is this machine's.
func ParsePlatform(text string) (Platform, error) {
	if text == "" {
		return Host(), nil
	}
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 || parts[0] != "linux" || parts[1] == "" {
		return Platform{}, fault.Newf(fault.Invalid, "platform_invalid", "%.100q is not a platform", text).WithHint("a platform is linux/amd64, linux/arm64 or linux/arm/v7")
	}
	p := Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	return p, nil
}

// Choose returns the image of an index for a platform.
func Choose(raw []byte, want Platform) (v1.Descriptor, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return v1.Descriptor{}, fault.Wrap(err, fault.Invalid, CodeInvalid, "the index of the image cannot be read")
	}
	var available []string
	for _, d := range index.Manifests {
		if !d.MediaType.IsImage() || d.Annotations["vnd.docker.reference.type"] != "" {
			continue
		}
		if d.Platform == nil {
			if len(index.Manifests) == 1 {
				return d, nil
			}
			continue
		}
		if d.Platform.Satisfies(want) {
			return d, nil
		}
		if text := d.Platform.String(); len(text) < 50 && len(available) < 20 {
			available = append(available, text)
		}
	}
	return v1.Descriptor{}, fault.Newf(fault.NotFound, CodePlatform, "the image is not available for %s", want.String()).
		WithHint("it is available for " + strings.Join(available, ", "))
}
