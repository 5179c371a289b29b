package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"mime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/manifest"
)

// MaxAttachment is the maximum size of a file that is attached to an image.
const MaxAttachment = 16 << 20

// Attachment is a file about an image, such as a list of its packages.
type Attachment struct {
	Type string // media type
	Data []byte
}

// Check returns an error if a registry could not store the attachment.
func (a Attachment) Check() error {
	kind, parameters, err := mime.ParseMediaType(a.Type)
	if err != nil || kind != a.Type || len(parameters) > 0 || !strings.Contains(kind, "/") {
		return fault.Newf(fault.Invalid, "attachment_type_invalid", "%.100q is not a media type", a.Type).
			WithHint("a type is like application/spdx+json, in lower case and without parameters")
	}
	if len(a.Data) == 0 || len(a.Data) > MaxAttachment {
		return fault.Newf(fault.Invalid, "attachment_size_invalid", "the file has %d bytes, and must have 1 to %d", len(a.Data), MaxAttachment)
	}
	return nil
}

// An attachment has no configuration. The OCI image specification prescribes this content for that.
const (
	emptyConfig                     = "{}"
	emptyConfigType types.MediaType = "application/vnd.oci.empty.v1+json"
)

// attached is the manifest of an attachment. It implements partial.CompressedImageCore.
type attached struct {
	raw   []byte
	layer v1.Layer
}

// newAttached returns the manifest of an attachment to a subject. The same file has the same
// manifest, so that attaching it again changes nothing.
func newAttached(subject v1.Descriptor, a Attachment) (attached, error) {
	layer := static.NewLayer(a.Data, types.MediaType(a.Type))
	digest, err := layer.Digest()
	if err != nil {
		return attached{}, err
	}
	config, _, err := v1.SHA256(strings.NewReader(emptyConfig))
	if err != nil {
		return attached{}, err
	}
	raw, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: a.Type, Subject: &subject,
		Config: v1.Descriptor{MediaType: emptyConfigType, Size: int64(len(emptyConfig)), Digest: config},
		Layers: []v1.Descriptor{{MediaType: types.MediaType(a.Type), Size: int64(len(a.Data)), Digest: digest}},
	})
	return attached{raw, layer}, err
}

// RawConfigFile implements partial.CompressedImageCore.
func (a attached) RawConfigFile() ([]byte, error) { return []byte(emptyConfig), nil }

// MediaType implements partial.CompressedImageCore.
func (a attached) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest implements partial.CompressedImageCore.
func (a attached) RawManifest() ([]byte, error) { return a.raw, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a attached) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.layer, nil }

// Attach sends a file about an image to the registry of a reference, where the image must be, and
// returns the digest of the file's manifest. Clients find it as a referrer of the image. In a
// registry without the interface for referrers they find it by the tag that the OCI distribution
// specification prescribes.
func (c *Client) Attach(ctx context.Context, ref name.Reference, img manifest.Image, a Attachment) (v1.Hash, error) {
	if err := a.Check(); err != nil {
		return v1.Hash{}, err
	}
	repo, err := c.openToPush(ctx, ref)
	if err != nil {
		return v1.Hash{}, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithTransport(repo.transport)}
	subject, err := remote.Head(repo.Digest(img.Digest.String()), options...)
	if err != nil {
		return v1.Hash{}, explain(ctx, Familiar(ref.Context().Digest(img.Digest.String())), err)
	}
	// Only these fields identify the image. A registry could add others to its answer.
	file, err := newAttached(v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: img.Digest}, a)
	if err != nil {
		return v1.Hash{}, err
	}
	digest, _, err := v1.SHA256(bytes.NewReader(file.raw))
	if err != nil {
		return v1.Hash{}, err
	}
	stored, err := partial.CompressedToImage(file)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := remote.Write(repo.Digest(digest.String()), stored, options...); err != nil {
		return v1.Hash{}, explain(ctx, Familiar(ref), err)
	}
	return digest, nil
}
