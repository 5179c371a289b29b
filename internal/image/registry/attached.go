package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
)

// maxAttached is the maximum number of files that are listed for one image.
const maxAttached = 1000

// Attached is a file that a registry lists as attached to an image.
type Attached struct {
	Digest  v1.Hash // of the file's manifest
	Type    string  // media type
	Subject v1.Hash // the image, or the index from which it was chosen
}

// Attached lists the files that are attached to an image in the registry of a reference. The
// subjects are the digests of the image and of the index from which it was chosen, because builders
// attach files to either.
func (c *Client) Attached(ctx context.Context, ref name.Reference, subjects []v1.Hash) ([]Attached, error) {
	repo, err := c.openToRead(ctx, ref)
	if err != nil {
		return nil, err
	}
	var list []Attached
	for _, subject := range subjects {
		index, err := remote.Referrers(repo.Digest(subject.String()), remote.WithContext(ctx), remote.WithTransport(repo.transport))
		if err != nil {
			return nil, explain(ctx, Familiar(ref), err)
		}
		found, err := index.IndexManifest()
		if err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "registry_failed", fmt.Sprintf("the registry lists the files of %s in a form that cannot be read", Familiar(ref)))
		}
		if len(list)+len(found.Manifests) > maxAttached {
			return nil, fault.Newf(fault.Exhausted, "attached_many", "the registry lists more than %d files of %s", maxAttached, Familiar(ref))
		}
		for _, d := range found.Manifests {
			kind, err := repo.typeOf(ctx, d)
			if err != nil {
				return nil, err
			}
			list = append(list, Attached{Digest: d.Digest, Type: kind, Subject: subject})
		}
	}
	return list, nil
}

// typeOf returns the type of an attached file. Some registries list that of its configuration, which
// it does not have.
func (r *repository) typeOf(ctx context.Context, d v1.Descriptor) (string, error) {
	if d.ArtifactType != "" && d.ArtifactType != string(emptyConfigType) {
		return d.ArtifactType, nil
	}
	found, err := r.manifest(ctx, r.Digest(d.Digest.String()))
	if err != nil {
		return "", err
	}
	var m v1.Manifest
	if err := json.Unmarshal(found.Manifest, &m); err != nil {
		return "", nil //nolint:nilerr // anything can be attached; it has no type
	}
	return fileType(m), nil
}

// fileType returns the media type of the file that a manifest describes.
func fileType(m v1.Manifest) string {
	if m.ArtifactType == "" && len(m.Layers) == 1 {
		return string(m.Layers[0].MediaType)
	}
	return m.ArtifactType
}

// openToRead opens the repository of a reference for reading, if the rules allow that.
func (c *Client) openToRead(ctx context.Context, ref name.Reference) (*repository, error) {
	if err := c.o.Rules.check(ref.Context()); err != nil {
		return nil, err
	}
	return c.open(ctx, ref.Context(), toPull)
}

// ReadAttached fetches an attached file by the digest of its manifest. A registry could offer a file
// about another image: the manifest, whose digest is compared, must name one of the subjects.
func (c *Client) ReadAttached(ctx context.Context, ref name.Reference, subjects []v1.Hash, digest v1.Hash) (Attachment, error) {
	repo, err := c.openToRead(ctx, ref)
	if err != nil {
		return Attachment{}, err
	}
	found, err := repo.manifest(ctx, repo.Digest(digest.String()))
	if err != nil {
		return Attachment{}, err
	}
	var m v1.Manifest
	if err := json.Unmarshal(found.Manifest, &m); err != nil || m.Subject == nil || !slices.Contains(subjects, m.Subject.Digest) {
		return Attachment{}, fault.Newf(fault.Invalid, "attachment_other_image", "%s is not a file about this image", digest)
	}
	if len(m.Layers) != 1 {
		return Attachment{}, fault.Newf(fault.Unsupported, "attachment_parts", "%s has %d parts, and only files of one part can be fetched", digest, len(m.Layers))
	}
	part := m.Layers[0]
	if part.Size <= 0 || part.Size > MaxAttachment {
		return Attachment{}, fault.Newf(fault.Invalid, "attachment_size_invalid", "the file has %d bytes, and must have 1 to %d", part.Size, MaxAttachment)
	}
	data, err := repo.read(ctx, part)
	if err != nil {
		return Attachment{}, explain(ctx, digest.String(), err)
	}
	return Attachment{Type: fileType(m), Data: data}, nil
}

// read fetches a small blob into memory and compares its digest.
func (r *repository) read(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.blobURL(d.Digest), nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := transport.CheckError(resp, http.StatusOK); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, d.Size+1))
	if err != nil {
		return nil, err
	}
	got, size, err := v1.SHA256(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if got != d.Digest || size != d.Size {
		return nil, fault.Newf(fault.Unavailable, blob.CodeWrong, "the registry sent other data than %s", d.Digest)
	}
	return data, nil
}

// blobURL is the address of a blob.
func (r *repository) blobURL(digest v1.Hash) string {
	return fmt.Sprintf("%s://%s/v2/%s/blobs/%s", r.Scheme(), r.RegistryStr(), r.RepositoryStr(), digest)
}
