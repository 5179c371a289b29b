package gvisor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/engine/linux/rootimage"
	"github.com/crannog/crannog/internal/engine/microvm/microvmtest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// packedRoot returns an image of this host's programs that is one EROFS file.
func packedRoot(t testing.TB) engine.Image {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpacked, err := microvmtest.Unpack(dir, self)
	if err != nil {
		t.Fatal(err)
	}
	view, err := unpacked.ImageView(t.Context(), engine.OCI{})
	if err != nil {
		t.Fatal(err)
	}
	complete(t, view.Dir)
	view.Packed = &engine.Packed{File: filepath.Join(dir, "root.erofs"), Owners: view.Owners, Binds: view.Binds}
	if err := rootimage.WriteView(t.Context(), view.Packed.File, view); err != nil {
		t.Fatal(err)
	}
	return engine.Image{HostView: &view, Guest: microvmtest.GuestPath}
}

// complete adds to a small image what the rules use of a host's files, and what the store of images
// adds to each: the mount point of the guest's program, and an entry in /tmp, without which gVisor
// mounts a tmpfs there.
func complete(t testing.TB, tree string) {
	t.Helper()
	for _, dir := range []string{"tmp/.X11-unix", "usr/share/doc", "usr/share/perl5", "usr/local/bin", ".crannog/programs/1"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"etc/mime.types": "", "etc/gitconfig": "[safe]\n", microvmtest.GuestPath: ""} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A sandbox whose root is a file has no file server. Everything else is as with a directory.
func TestConformancePacked(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	c := suite(t, false)
	c.Cycles, c.Image = 3, packedRoot(t)
	c.Only = only("lifecycle/create-is-ready", "leaks/cycles-leave-nothing", "limits/disk-is-full-at-the-limit", "limits/files-are-bounded",
		"restart/another-process-finds-the-sandbox", "archive/has-kinds-owners-and-removals", "state/memory-files-and-listeners-continue")
	if c.Only == nil {
		c.Waive = map[string]string{"bound/F24-lists-exactly-open-and-mapped-files": "a sandbox of an image maps the image's C library, not the host's"}
	}
	enginetest.Run(t, c)
}
