package rootpath_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/rootpath"
)

func TestOpenKeepsLinksInRoot(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"etc", "proc", "workspace/deep"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/hostname"), []byte("inside"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"up": "../../../../etc/hostname", "absolute": "/etc/hostname", "served": "/proc", "none": "/none"} {
		if err := os.Symlink(target, filepath.Join(dir, "workspace", name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for path, want := range map[string]rootpath.Location{
		"/workspace":          {Inside: "/workspace", Directory: true},
		"/workspace/up":       {Inside: "/etc/hostname"},
		"/workspace/absolute": {Inside: "/etc/hostname"},
	} {
		p, err := rootpath.Open(root, path, 0)
		if err != nil {
			t.Errorf("open %s: %v", path, err)
			continue
		}
		p.Close()
		if p.File = nil; p != want {
			t.Errorf("the location of %s is %+v, want %+v", path, p, want)
		}
	}
	link, err := rootpath.Open(root, "/workspace/up", unix.O_NOFOLLOW)
	if err != nil || !link.Link || link.Inside != "/workspace/up" {
		t.Errorf("the link itself: %+v, %v", link, err)
	}
	link.Close()
	if _, err := rootpath.Open(root, "/workspace/none", 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a link to nothing: %v", err)
	}
	for _, path := range []string{"/", "etc", "/etc/../etc", "/proc", "/workspace/served"} {
		if p, err := rootpath.Open(root, path, 0); err == nil {
			p.Close()
			t.Errorf("%s is found at %s", path, p.Inside)
		}
	}
}
