package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/image/imagetest"
)

const (
	nameHostView  = "view of the host"
	nameImage     = "image"
	nameStockRoot = "stock runsc do, the image's files"
	namePull      = "crannog image pull"
	nameSkopeo    = "skopeo copy, umoci unpack"
)

// imageFigures compares a sandbox of an image with one of the host's files, and measures how an
// image is pulled and unpacked. mmdebstrap creates the image, a Debian.
func imageFigures(ctx context.Context, b *bench) (err error) {
	if !found("mmdebstrap") {
		return errors.New("mmdebstrap, which creates the image, is not installed")
	}
	rootTar := filepath.Join(b.dir, "debian.tar")
	if out, err := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--variant=minbase", "bookworm", rootTar).CombinedOutput(); err != nil {
		return fmt.Errorf("mmdebstrap: %w: %s", err, out)
	}
	img, err := imageOf(rootTar)
	if err != nil {
		return err
	}
	if err := b.imageStarts(ctx, rootTar, img); err != nil {
		return err
	}
	return b.imagePulls(ctx, rootTar, img)
}

// imageOf returns an image with one layer, compressed as in a registry.
func imageOf(rootTar string) (v1.Image, error) {
	l, err := tarball.LayerFromFile(rootTar)
	if err != nil {
		return nil, err
	}
	return imagetest.Build(v1.Config{Env: []string{"PATH=/usr/bin:/bin"}}, l)
}

// imageStarts measures cold starts: the time from the creation to the first output.
func (b *bench) imageStarts(ctx context.Context, rootTar string, img v1.Image) (err error) {
	srv, err := b.serve(ctx, b.crannog, "images-serve", "--pool", "off")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	tag, err := name.NewTag("debian:bench")
	if err != nil {
		return err
	}
	file := filepath.Join(b.dir, "image.tar")
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, b.crannog, "--state", srv.state, "image", "import", "-q", file).CombinedOutput(); err != nil {
		return fmt.Errorf("image import: %w: %s", err, out)
	}
	ofImage := crannog.Image("debian:bench")
	all := []contender{lifeSandbox(nameHostView, srv.client), lifeSandbox(nameImage, srv.client, ofImage)}
	if b.earlier != "" {
		earlier, err := b.serve(ctx, b.earlier, "images-earlier", "--pool", "off")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, earlier.close()) }()
		all = append(all, lifeSandbox(nameHostView+withEarlier, earlier.client))
	}
	if found(b.runsc) {
		root, state := filepath.Join(b.dir, "images-root"), filepath.Join(b.dir, "images-stock")
		if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(state, 0o700)); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "tar", "-C", root, "--exclude=./dev/*", "-xf", rootTar).CombinedOutput(); err != nil {
			return fmt.Errorf("tar: %w: %s", err, out)
		}
		all = append(all, lifeBare(nameStockRoot, []string{b.runsc, "--root=" + state, "--network=none", "--ignore-cgroups", "do", "--root=" + root, "/bin/echo", "ok"}, nil))
	}
	s, err := race(ctx, b.n, all...)
	if err != nil {
		return err
	}
	for _, what := range []struct{ suffix, title string }{
		{first, "from nothing to the first byte of `echo ok`, cold"}, {whole, "the same, until the sandbox is gone again"},
	} {
		part := newScores()
		for _, c := range all {
			for _, v := range s.by[c.name+what.suffix] {
				part.add(c.name, v)
			}
		}
		sec := table("images", what.title, "ms", part)
		sec.against(nameHostView)
		if b.earlier != "" {
			sec.against(nameHostView+withEarlier, nameImage)
			sec.target(nameImage, "≤ 0.85× "+nameHostView+withEarlier, func(r row) bool { return r.Ratio <= 0.85 })
		}
		b.report.add(sec)
	}
	return b.idleMemory(ctx, "of an image", srv, 12, ofImage)
}

// imagePulls measures pulls from a registry on this machine to files on its disk. The rates count
// the bytes of the unpacked files.
func (b *bench) imagePulls(ctx context.Context, rootTar string, img v1.Image) error {
	srv := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	ref, err := name.ParseReference(host + "/debian:bench")
	if err != nil {
		return err
	}
	if err := remote.Write(ref, img, remote.WithContext(ctx)); err != nil {
		return err
	}
	info, err := os.Stat(rootTar)
	if err != nil {
		return err
	}
	n := 0
	measurePull := func(contenderName string, line func(dir string) []string) contender {
		return contender{contenderName, func(ctx context.Context, s *scores) error {
			n++
			dir := filepath.Join(b.dir, "pull-"+strconv.Itoa(n))
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			argv := line(dir)
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), "CRANNOG_IMAGE_INSECURE="+host)
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			s.add(contenderName, rate(info.Size(), time.Since(began)))
			return os.RemoveAll(dir)
		}}
	}
	all := []contender{measurePull(namePull, func(dir string) []string {
		return []string{b.crannog, "--state", dir, "image", "pull", "-q", ref.Name()}
	})}
	if found("skopeo") && found("umoci") {
		all = append(all, measurePull(nameSkopeo, func(dir string) []string {
			return []string{"sh", "-c", `skopeo --insecure-policy copy -q --src-tls-verify=false docker://"$1" oci:"$2"/layout:bench && umoci unpack --image "$2"/layout:bench "$2"/bundle`, "sh", ref.Name(), dir}
		}))
	}
	s, err := race(ctx, b.fewer(4), all...)
	if err != nil {
		return err
	}
	sec := table("images", fmt.Sprintf("from a registry to %d MB of files", info.Size()/1e6), "MB/s", s)
	if len(all) == 1 {
		sec.note("skopeo and umoci are not installed, so their row is missing")
	}
	sec.against(nameSkopeo)
	b.report.add(sec)
	return nil
}
