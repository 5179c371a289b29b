// Package imagetest owns the images of tests: it creates images, and runs a registry in this
// process.
package imagetest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crannog/crannog/internal/image/manifest"
)

// File is one entry of a layer. A name that ends in "/" makes a directory, a Link makes a symbolic
// link.
type File struct {
	Name, Content, Link string
	Mode                int64
	UID, GID            int
}

// Layer returns a tar of files.
func Layer(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode, Uid: f.UID, Gid: f.GID, Size: int64(len(f.Content)), ModTime: time.Unix(1_700_000_000, 0)}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		switch {
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Image returns an image of layers for this machine.
func Image(t testing.TB, config v1.Config, layers ...[]byte) v1.Image {
	t.Helper()
	var made []v1.Layer
	for _, data := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, l)
	}
	img, err := Build(config, made...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// Build is like Image, for layers that are not in memory and for callers outside a test.
func Build(config v1.Config, layers ...v1.Layer) (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config = "linux", manifest.Host().Architecture, config
	return mutate.ConfigFile(img, c)
}

// Feature returns a feature of development containers, whose files are in a tar.
func Feature(files []byte) (v1.Image, error) {
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(files, "application/vnd.devcontainers.layer.v1+tar"))
	if err != nil {
		return nil, err
	}
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), manifest.FeatureConfig), nil
}

// Registry starts a registry in this process and returns its name.
func Registry(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(server.New(server.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// Publish stores an image under a name in a registry.
func Publish(t testing.TB, ref string, img v1.Image) {
	t.Helper()
	named, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(named, img); err != nil {
		t.Fatal(err)
	}
}

// Referrers returns the content of the files that are attached to an image in a registry, by their
// types.
func Referrers(image name.Digest) (map[string][]byte, error) {
	index, err := remote.Referrers(image)
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	found := map[string][]byte{}
	for _, d := range list.Manifests {
		file, err := remote.Image(image.Context().Digest(d.Digest.String()))
		if err != nil {
			return nil, err
		}
		m, err := file.Manifest()
		if err != nil {
			return nil, err
		}
		if m.Subject == nil || m.Subject.Digest.String() != image.DigestStr() || len(m.Layers) != 1 {
			return nil, fmt.Errorf("%s is not a file about %s: %+v", d.Digest, image, m)
		}
		layer, err := file.LayerByDigest(m.Layers[0].Digest)
		if err != nil {
			return nil, err
		}
		r, err := layer.Compressed()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		found[m.ArtifactType] = data // a list may have the type of the configuration instead
	}
	return found, nil
}

// Guest creates a file for the guest's program, which libraries of images add to each image.
func Guest(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "guest-1")
	if err := os.WriteFile(file, []byte("guest"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}
