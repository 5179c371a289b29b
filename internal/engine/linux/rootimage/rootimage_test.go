package rootimage_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/rootimage"
	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// view returns a view with files of several sizes, a link, a table of owners and a bind.
func view(t *testing.T) engine.HostView {
	t.Helper()
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	for name, size := range map[string]int{"empty": 0, "small": 100, "etc/block": 4096, "etc/more": 4097, "usr/bin/large": 300_000, ".own/guest": 0} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), content(name, size), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("small", filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	guest := filepath.Join(dir, "guest")
	if err := os.WriteFile(guest, content("guest", 50), 0o555); err != nil {
		t.Fatal(err)
	}
	table, err := fileowners.Table{"/etc": {UID: 7, GID: 8}, "/small": {SetID: 0o4000}}.Text()
	if err != nil {
		t.Fatal(err)
	}
	owners := filepath.Join(dir, "owners")
	if err := os.WriteFile(owners, table, 0o600); err != nil {
		t.Fatal(err)
	}
	return engine.HostView{Dir: tree, Owners: owners, Binds: []engine.Bind{{Source: guest, Target: "/.own/guest"}}}
}

// content returns what a file contains.
func content(name string, size int) []byte {
	return []byte(strings.Repeat(name+" ", size)[:size])
}

// open reads an image.
func open(t *testing.T, name string) fs.FS {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	tree, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestViewIsWrittenWhole(t *testing.T) {
	v, name := view(t), filepath.Join(t.TempDir(), "root.erofs")
	if err := rootimage.WriteView(t.Context(), name, v); err != nil {
		t.Fatal(err)
	}
	tree := open(t, name)
	for file, want := range map[string]struct {
		size     int
		uid, gid uint32
		mode     fs.FileMode
	}{
		"empty": {0, 0, 0, 0o755}, "small": {100, 0, 0, 0o755 | fs.ModeSetuid}, "etc/block": {4096, 7, 8, 0o755}, "etc/more": {4097, 7, 8, 0o755},
		"usr/bin/large": {300_000, 0, 0, 0o755}, ".own/guest": {50, 0, 0, 0o555},
	} {
		data, err := fs.ReadFile(tree, file)
		if base := strings.TrimPrefix(file, ".own/"); err != nil || !bytes.Equal(data, content(base, want.size)) {
			t.Errorf("%s: %d bytes, %v", file, len(data), err)
		}
		info, err := fs.Stat(tree, file)
		if err != nil {
			t.Fatal(err)
		}
		stat, ok := info.Sys().(*erofs.Stat)
		if !ok {
			t.Fatalf("%s: %T", file, info.Sys())
		}
		if stat.UID != want.uid || stat.GID != want.gid || stat.Mode != want.mode {
			t.Errorf("%s: %d:%d %o, want %+v", file, stat.UID, stat.GID, stat.Mode, want)
		}
		// The kernel of a sandbox can map only content that has blocks of its own.
		const plain = 0
		if stat.InodeLayout != plain {
			t.Errorf("%s has the layout %d", file, stat.InodeLayout)
		}
	}
	info, err := os.Stat(name)
	if err != nil || info.Size()%4096 != 0 {
		t.Errorf("the image has %d bytes, %v", info.Size(), err)
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	v, dir := view(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rootimage.WriteView(ctx, filepath.Join(dir, "root.erofs"), v); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	v.Binds[0].Source = "/does/not/exist"
	if err := rootimage.WriteView(t.Context(), filepath.Join(dir, "root.erofs"), v); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestNamesOfDrafts(t *testing.T) {
	for name, want := range map[string]bool{".draft-1": true, "erofs-mkfs-2": true, "root.erofs": false, "tree": false} {
		if rootimage.IsDraft(name) != want {
			t.Errorf("%s: draft %v", name, !want)
		}
	}
}
