package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/registry"
)

// Formats of archives.
const (
	OCI    = "oci"
	Docker = "docker"
)

// CheckFormat returns an error for an unknown format; "" is OCI.
func CheckFormat(format string) error {
	if format == "" || format == OCI || format == Docker {
		return nil
	}
	return fault.Newf(fault.Invalid, "image_format_invalid", "%.50q is not a format of images", format).WithHint("a format is oci or docker")
}

// Export writes an image as a tar that Import, docker load and skopeo read.
func Export(ctx context.Context, w io.Writer, img manifest.Image, ref name.Reference, format string, blobs *blob.Store) error {
	if err := CheckFormat(format); err != nil {
		return err
	}
	w = contextWriter{ctx, w}
	if format == Docker {
		stored, err := registry.Stored(img, blobs)
		if err != nil {
			return err
		}
		return tarball.Write(ref, stored, w)
	}
	return exportOCI(w, img, ref, blobs)
}

// contextWriter is a writer that fails once its context has ended.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

// Write implements io.Writer.
func (s contextWriter) Write(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.w.Write(p)
}

// exportOCI writes an image as a tar of an OCI layout.
func exportOCI(w io.Writer, img manifest.Image, ref name.Reference, blobs *blob.Store) error {
	mediaType := img.Manifest.MediaType
	if mediaType == "" {
		mediaType = types.OCIManifestSchema1
	}
	entry := v1.Descriptor{MediaType: mediaType, Digest: img.Digest, Size: int64(len(img.Raw)), Platform: img.Config.Platform()}
	if tag, ok := ref.(name.Tag); ok {
		entry.Annotations = map[string]string{nameKeys[0]: tag.Name(), nameKeys[1]: tag.TagStr()}
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{entry}})
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index}} {
		if err := header(t, f.name, int64(len(f.data))); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	seen := map[v1.Hash]bool{}
	for _, d := range img.Blobs() {
		if seen[d] {
			continue
		}
		seen[d] = true
		if err := exportBlob(t, d, blobs); err != nil {
			return err
		}
	}
	return t.Close()
}

// header writes the header of a file. The same image always yields the same archive.
func header(t *tar.Writer, name string, size int64) error {
	return t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0), Format: tar.FormatPAX})
}

// exportBlob writes one blob as a file of the layout.
func exportBlob(t *tar.Writer, d v1.Hash, blobs *blob.Store) error {
	size, _ := blobs.Size(d)
	r, err := blobs.Open(d)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := header(t, path.Join("blobs", d.Algorithm, d.Hex), size); err != nil {
		return err
	}
	_, err = io.Copy(t, r)
	return err
}
