// Package build_test compares images that Crannog builds with those of other builders, and ends
// builds in every way.
package build_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// applets are the programs of the base image, all of which are busybox.
var applets = []string{
	"sh", "ls", "cat", "echo", "id", "env", "mkdir", "touch", "sleep", "dd", "test", "find", "ln", "rm", "rmdir", "mv", "cp", "pwd", "true", "false", "chmod", "chown",
	"mkfifo", "wc", "tr", "stat",
}

// writeBase writes base:1, an image with the host's static busybox, in the format of docker save.
func writeBase(t testing.TB, file string) {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var errs []error
	add := func(h tar.Header, content string) {
		h.Size = int64(len(content))
		errs = append(errs, w.WriteHeader(&h))
		_, err := io.WriteString(w, content)
		errs = append(errs, err)
	}
	for _, d := range []string{"bin", "etc", "srv", "var", "root", "proc", "sys", "dev", "run", "home", "var/tmp", "tmp"} {
		mode := int64(0o755)
		if d == "tmp" || d == "var/tmp" {
			mode = 0o1777
		}
		add(tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: mode}, "")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, string(busybox))
	for _, a := range applets {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + a, Linkname: "busybox", Mode: 0o777}, "")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, "root:x:0:0:root:/root:/bin/sh\napp:x:70:71::/srv:/bin/sh\n")
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, "root:x:0:\napp:x:71:\nstaff:x:50:\n")
	for _, n := range []string{"etc/hosts", "etc/hostname", "etc/resolv.conf"} {
		add(tar.Header{Typeflag: tar.TypeReg, Name: n, Mode: 0o644}, "")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "srv/own", Mode: 0o600, Uid: 70, Gid: 71}, "of the image\n")
	if err := errors.Join(append(errs, w.Close())...); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", goArch
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	config.Config.Cmd = []string{"/bin/sh"}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("base:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
}
