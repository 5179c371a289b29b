package main

import (
	"archive/tar"
	"bytes"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/crannog/crannog/internal/guest/javastore"
	"github.com/crannog/crannog/internal/image/imagetest"
)

// applets are the programs of the image, all of which are busybox.
var applets = []string{"sh", "ls", "cat", "echo", "id", "env", "mkdir", "touch", "sleep", "uname", "wget", "dd", "test", "find", "hostname", "ln", "rmdir", "pwd", "true", "false", "mktemp", "cp", "chmod", "rm"}

// makeImage creates an image with the host's static busybox, either as docker save writes it, or in
// a registry of this process: makeimage FILE NAME, makeimage registry NAME. Afterwards the
// registry's name is in $REGISTRY.
func makeImage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: makeimage FILE|registry NAME")
	}
	img, err := busyboxImage()
	ts.Check(err)
	if args[0] != "registry" {
		tag, err := name.NewTag(args[1])
		ts.Check(err)
		ts.Check(tarball.WriteToFile(ts.MkAbs(args[0]), tag, img))
		return
	}
	s := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	ts.Defer(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	ts.Setenv("REGISTRY", host)
	ref, err := name.ParseReference(host + "/" + args[1])
	ts.Check(err)
	ts.Check(remote.Write(ref, img))
}

// saveReferrers saves the files that are attached to an image in the registry of makeimage, below
// the directory referrers and named after their types, with dashes for slashes: referrers NAME.
func saveReferrers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: referrers NAME")
	}
	ref, err := name.ParseReference(ts.Getenv("REGISTRY") + "/" + args[0])
	ts.Check(err)
	image, err := remote.Head(ref)
	ts.Check(err)
	files, err := imagetest.Referrers(ref.Context().Digest(image.Digest.String()))
	ts.Check(err)
	ts.Check(os.MkdirAll(ts.MkAbs("referrers"), 0o755))
	for mediaType, data := range files {
		ts.Check(os.WriteFile(filepath.Join(ts.MkAbs("referrers"), strings.ReplaceAll(mediaType, "/", "-")), data, 0o600))
	}
}

// makeFeature stores the files of a directory as a feature of development containers in the
// registry of makeimage: makefeature DIR NAME.
func makeFeature(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: makefeature DIR NAME")
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	ts.Check(w.AddFS(os.DirFS(ts.MkAbs(args[0]))))
	ts.Check(w.Close())
	img, err := imagetest.Feature(b.Bytes())
	ts.Check(err)
	ref, err := name.ParseReference(ts.Getenv("REGISTRY") + "/" + args[1])
	ts.Check(err)
	ts.Check(remote.Write(ref, img))
}

func busyboxImage() (v1.Image, error) {
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(content)
		}
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o4755}, program)
	for _, a := range applets {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/root:/bin/sh\napp:x:70:71::/srv:/bin/sh\n"))
	// A trust store of Java that is not the host's.
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/ssl/certs/java/cacerts", Mode: 0o644}, javastore.Join(0))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "srv/own", Mode: 0o600, Uid: 70, Gid: 71}, []byte("of the image\n"))
	add(tar.Header{Typeflag: tar.TypeChar, Name: "srv/kmem", Mode: 0o666, Devmajor: 1, Devminor: 2}, nil)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	return imagetest.Build(v1.Config{User: "app", WorkingDir: "/srv", Env: []string{"PATH=/bin", "GREETING=hello"}, Entrypoint: []string{"env"}, Cmd: []string{"sh", "-c", "echo $GREETING from $PWD as $(id -u):$(id -g)"}}, l)
}
