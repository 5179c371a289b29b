// Package archive owns images in files: it reads OCI layouts and docker-archives into a blob store,
// and writes them.
package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/manifest"
)

// CodeInvalid is the code of the error for a file without images.
const CodeInvalid = "image_archive_invalid"

// Imported is one image of an archive.
type Imported struct {
	Manifest v1.Hash
	Names    []string // in the archive
}

// maxEntries limits the files of an archive, and maxBytes its total size.
const (
	maxEntries = 10_000
	maxBytes   = 256 << 30
)

// Import reads all images for a platform from a file, or from the directory of an OCI layout, into
// a store.
func Import(ctx context.Context, from string, platform v1.Platform, blobs *blob.Store) ([]Imported, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the archive cannot be read")
	}
	if info.IsDir() {
		return importDir(ctx, from, platform, blobs)
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Invalid, CodeInvalid, "the archive is neither a file nor a directory")
	}
	index, docker, err := scan(ctx, from, blobs)
	if err != nil {
		return nil, err
	}
	switch {
	case index != nil:
		return fromIndex(index, platform, blobs, 0)
	case docker:
		return importDocker(ctx, from, blobs)
	}
	return nil, fault.New(fault.Invalid, CodeInvalid, "the file is neither an OCI layout nor a docker-archive").
		WithHint("make one with docker save, skopeo copy or crannog image export")
}

// scan reads a tar once. The blobs of an OCI layout are stored under the digests of their content.
func scan(ctx context.Context, from string, blobs *blob.Store) (index []byte, docker bool, err error) {
	r, err := openArchive(from)
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	entries := tar.NewReader(io.LimitReader(r, maxBytes))
	for n := 0; ; n++ {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return index, docker, nil
		}
		if err != nil || n > maxEntries {
			return nil, false, fault.Wrap(errors.Join(err, ctx.Err()), fault.Invalid, CodeInvalid, "the archive is broken or does not contain images")
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		switch name := path.Clean(h.Name); {
		case name == "index.json":
			if index, err = io.ReadAll(io.LimitReader(entries, manifest.MaxManifest)); err != nil {
				return nil, false, err
			}
		case name == "manifest.json":
			docker = true
		case strings.HasPrefix(name, "blobs/sha256/"):
			d := v1.Hash{Algorithm: "sha256", Hex: path.Base(name)}
			if err := put(ctx, blobs, d, h.Size, entries); err != nil {
				return nil, false, err
			}
		}
	}
}

// openArchive opens and uncompresses an archive.
func openArchive(from string) (io.ReadCloser, error) {
	f, err := os.Open(from)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the archive cannot be read")
	}
	plain, err := layer.Uncompress(f)
	if err != nil {
		f.Close()
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the archive cannot be uncompressed")
	}
	return fileReader{plain, f}, nil
}

// fileReader is a reader that also closes the file below it.
type fileReader struct {
	io.ReadCloser
	file io.Closer
}

// Close implements io.Closer.
func (b fileReader) Close() error { return errors.Join(b.ReadCloser.Close(), b.file.Close()) }

// put stores a blob with a known digest and size.
func put(ctx context.Context, blobs *blob.Store, d v1.Hash, size int64, from io.Reader) error {
	draft, err := blobs.Begin(ctx, d, size)
	if err != nil || draft == nil {
		return err
	}
	defer draft.Close()
	if err := draft.Reset(); err != nil {
		return err
	}
	if _, err := io.Copy(draft, from); err != nil {
		return err
	}
	return draft.Commit()
}

// importDir reads the directory of an OCI layout.
func importDir(ctx context.Context, dir string, platform v1.Platform, blobs *blob.Store) ([]Imported, error) {
	index, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the directory is not an OCI layout")
	}
	entries, err := os.ReadDir(filepath.Join(dir, "blobs", "sha256"))
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the directory is not an OCI layout")
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if err := putFile(ctx, filepath.Join(dir, "blobs", "sha256", e.Name()), e.Name(), blobs); err != nil {
			return nil, err
		}
	}
	return fromIndex(index, platform, blobs, 0)
}

// putFile stores a file as a blob.
func putFile(ctx context.Context, file, hex string, blobs *blob.Store) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return put(ctx, blobs, v1.Hash{Algorithm: "sha256", Hex: hex}, info.Size(), f)
}

// nameKeys are the annotations that name an image, the most specific first.
var nameKeys = []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"}

// fromIndex returns the images that an index lists.
func fromIndex(raw []byte, platform v1.Platform, blobs *blob.Store, depth int) (list []Imported, err error) {
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the index of the archive cannot be read")
	}
	for _, d := range index.Manifests {
		target := d
		if manifest.IsIndex(d.MediaType) {
			inner, err := blobs.Read(d.Digest, manifest.MaxManifest)
			if err != nil {
				return nil, err
			}
			if target, err = manifest.Choose(inner, platform); err != nil {
				return nil, err
			}
		}
		if !target.MediaType.IsImage() {
			continue
		}
		img, err := manifest.Load(blobs, target.Digest)
		if err != nil {
			return nil, err
		}
		for _, need := range img.Blobs() {
			if _, ok := blobs.Size(need); !ok {
				return nil, fault.Newf(fault.Invalid, CodeInvalid, "the archive lacks the blob %s", need)
			}
		}
		one := Imported{Manifest: target.Digest}
		for _, key := range nameKeys {
			if name := d.Annotations[key]; name != "" && len(one.Names) == 0 {
				one.Names = append(one.Names, name)
			}
		}
		list = append(list, one)
	}
	if len(list) == 0 {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "the archive has no image for %s", platform.String())
	}
	return list, nil
}

// importDocker reads the output of docker save.
func importDocker(ctx context.Context, from string, blobs *blob.Store) (list []Imported, err error) {
	opener := func() (io.ReadCloser, error) { return openArchive(from) }
	all, err := tarball.LoadManifest(opener)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, CodeInvalid, "the manifest of the archive cannot be read")
	}
	for _, d := range all {
		one, err := importOne(ctx, opener, d, blobs)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

// importOne stores one image of a docker-archive.
func importOne(ctx context.Context, opener tarball.Opener, d tarball.Descriptor, blobs *blob.Store) (Imported, error) {
	img, err := dockerImage(opener, d)
	if err != nil {
		return Imported{}, fault.Wrap(err, fault.Invalid, CodeInvalid, "an image of the archive cannot be read")
	}
	layers, err := img.Layers()
	if err != nil {
		return Imported{}, fault.Wrap(err, fault.Invalid, CodeInvalid, "an image of the archive cannot be read")
	}
	for _, l := range layers {
		if err := putLayer(ctx, l, blobs); err != nil {
			return Imported{}, fmt.Errorf("import a layer: %w", err)
		}
	}
	for _, document := range []func() ([]byte, error){img.RawConfigFile, img.RawManifest} {
		raw, err := document()
		if err != nil {
			return Imported{}, err
		}
		if _, err := blobs.Put(raw); err != nil {
			return Imported{}, err
		}
	}
	digest, err := img.Digest()
	if err != nil {
		return Imported{}, err
	}
	if _, err := manifest.Load(blobs, digest); err != nil {
		return Imported{}, err
	}
	return Imported{Manifest: digest, Names: d.RepoTags}, nil
}
