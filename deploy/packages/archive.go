package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// tarball writes all files below one directory, for a machine without dpkg and rpm.
func (r release) tarball(list []file) (string, error) {
	name := fmt.Sprintf("crannog-%s-linux-%s.tar.gz", r.version, r.arch)
	f, err := os.OpenFile(filepath.Join(r.out, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	z := gzip.NewWriter(f)
	err = r.writeTar(z, strings.TrimSuffix(name, ".tar.gz"), list)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		f.Close()
		return "", err
	}
	return name, f.Close()
}

// writeTar writes files and their directories, all of root and with the release's time.
func (r release) writeTar(to io.Writer, top string, list []file) error {
	w := tar.NewWriter(to)
	written := map[string]bool{".": true, "": true, "/": true}
	var directory func(string) error
	directory = func(name string) error {
		if written[name] {
			return nil
		}
		if err := directory(path.Dir(name)); err != nil {
			return err
		}
		written[name] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: r.time, Format: tar.FormatPAX})
	}
	for _, f := range list {
		name := strings.TrimPrefix(path.Join(top, f.path), "/")
		if err := directory(path.Dir(name)); err != nil {
			return err
		}
		data, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(f.mode), Size: int64(len(data)), ModTime: r.time, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}

// certificates are the authorities that the server and its egress gateway trust, where the machine
// that builds has them.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// image writes an OCI image as a layout in a tar file, which podman, skopeo and containerd read.
func (r release) image(list []file) (string, error) {
	var contents []file
	for _, f := range list {
		if f.path == "/usr/bin/crannog" || f.path == "/etc/crannog/config.toml" || f.path == "/usr/share/doc/crannog/copyright" {
			contents = append(contents, f)
		}
	}
	base := v1.Image(empty.Image)
	if r.base != "" {
		below, err := tarball.ImageFromPath(r.base, nil)
		if err != nil {
			return "", fmt.Errorf("base image: %w", err)
		}
		base = below
	} else if _, err := os.Stat(certificates); err == nil {
		contents = append([]file{{path: certificates, source: certificates, mode: 0o644}}, contents...)
	}
	var b bytes.Buffer
	if err := r.writeTar(&b, "", contents); err != nil {
		return "", err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		return "", err
	}
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "crannog " + r.version}})
	if err != nil {
		return "", err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return "", err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", r.arch, v1.Time{Time: r.time}
	config.Config.Entrypoint, config.Config.Cmd = []string{"/usr/bin/crannog"}, []string{"serve", "--no-key"}
	config.Config.ExposedPorts = map[string]struct{}{"7070/tcp": {}}
	config.Config.Volumes = map[string]struct{}{"/var/lib/crannog": {}}
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "CRANNOG_STATE=/var/lib/crannog"}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.title": "crannog", "org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0",
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return "", err
	}
	return r.writeLayout(img)
}

func (r release) writeLayout(img v1.Image) (string, error) {
	dir, err := os.MkdirTemp("", "crannog-layout-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("crannog-%s-linux-%s.oci.tar", r.version, r.arch)
	if err := at.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})); err != nil {
		return "", err
	}
	var list []file
	err = filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			list = append(list, file{path: strings.TrimPrefix(name, dir), source: name, mode: 0o644})
		}
		return err
	})
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(r.out, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	if err := r.writeTar(f, "", list); err != nil {
		f.Close()
		return "", err
	}
	return name, f.Close()
}
