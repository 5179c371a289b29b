package overlaytar_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/overlaytar"
)

// layer creates an upper directory with a file of each kind that needs no special rights.
func layer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "d/e"), 0o750),
		os.WriteFile(filepath.Join(dir, "d/f"), []byte("content"), 0o640),
		os.Link(filepath.Join(dir, "d/f"), filepath.Join(dir, "d/hard")),
		os.Symlink("/etc/passwd", filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.WriteFile(filepath.Join(dir, "initial"), []byte("with the sandbox"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// write returns the headers and contents of the tar of a layer, by name.
func write(t *testing.T, dir, mountedAt string, change func(*overlaytar.Options)) (map[string]*tar.Header, map[string]string, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	o := overlaytar.Options{Owner: func(uid, gid int) (int, int) { return uid + 7, gid + 8 }, Most: 1 << 20}
	if change != nil {
		change(&o)
	}
	var w bytes.Buffer
	if err := overlaytar.Write(t.Context(), &w, []overlaytar.Layer{{Upper: root, Path: mountedAt}}, o); err != nil {
		return nil, nil, err
	}
	headers, contents := map[string]*tar.Header{}, map[string]string{}
	for r := tar.NewReader(&w); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		headers[h.Name], contents[h.Name] = h, string(data)
	}
}

func TestWriteKindsOfFiles(t *testing.T) {
	got, contents, err := write(t, layer(t), "usr", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"usr/": "5 ", "usr/d/": "5 ", "usr/d/e/": "5 ", "usr/d/f": "0 ", "usr/d/hard": "1 usr/d/f", "usr/link": "2 /etc/passwd", "usr/pipe": "6 ", "usr/initial": "0 ",
	} {
		h := got[name]
		if h == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		if have := fmt.Sprintf("%c %s", h.Typeflag, h.Linkname); have != want {
			t.Errorf("%s has the kind and target %q, want %q", name, have, want)
		}
		if h.Uid != os.Getuid()+7 || h.Gid != os.Getgid()+8 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %q", name, h.Uid, h.Gid, h.Uname)
		}
	}
	if len(got) != 8 || contents["usr/d/f"] != "content" || got["usr/d/f"].Mode != 0o640 {
		t.Errorf("the tar has %d entries, and d/f the content %q and the mode %o", len(got), contents["usr/d/f"], got["usr/d/f"].Mode)
	}
}

// A file that was created with the sandbox counts as changed only after a program has changed it.
func TestWriteOmitsUnchangedFiles(t *testing.T) {
	dir := layer(t)
	setUnchanged := func(o *overlaytar.Options) {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, "initial"), &stat); err != nil {
			t.Fatal(err)
		}
		o.Unchanged = map[string]time.Time{"initial": time.Unix(stat.Ctim.Unix())}
	}
	var options overlaytar.Options
	setUnchanged(&options)
	before, _, err := write(t, dir, "", func(o *overlaytar.Options) { o.Unchanged = options.Unchanged })
	if err != nil || before["initial"] != nil || before["d/f"] == nil {
		t.Errorf("the unchanged file: %v %v", before["initial"], err)
	}
	options.Unchanged["initial"] = options.Unchanged["initial"].Add(-time.Nanosecond)
	after, _, err := write(t, dir, "", func(o *overlaytar.Options) { o.Unchanged = options.Unchanged })
	if err != nil || after["initial"] == nil {
		t.Errorf("the changed file: %v %v", after["initial"], err)
	}
}

func TestWriteKeepsAttributes(t *testing.T) {
	dir := layer(t)
	for name, value := range map[string]string{"user.mine": "x\x00y", "user.overlay.opaque": "y", "user.overlay.origin": "z"} {
		err := unix.Setxattr(filepath.Join(dir, "d"), name, []byte(value), 0)
		if err != nil {
			t.Fatalf("set the attribute %s: %v", name, err)
		}
	}
	got, _, err := write(t, dir, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var records []string
	for key, value := range got["d/"].PAXRecords {
		if name, ok := strings.CutPrefix(key, "SCHILY.xattr."); ok {
			records = append(records, name+"="+value)
		}
	}
	slices.Sort(records)
	if want := []string{"trusted.overlay.opaque=y", "user.mine=x\x00y"}; !slices.Equal(records, want) {
		t.Errorf("the attributes are %q, want %q", records, want)
	}
}

// A sandbox can make files of any size at no cost.
func TestWriteLimitsSize(t *testing.T) {
	dir := layer(t)
	if err := os.Truncate(filepath.Join(dir, "initial"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, _, err := write(t, dir, "", nil); !errors.Is(err, overlaytar.ErrTooLarge) {
		t.Errorf("a file of 1 TiB: %v", err)
	}
}

func TestWriteEndsWithContext(t *testing.T) {
	root, err := os.OpenRoot(layer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("canceled by the caller")
	cancel(cause)
	err = overlaytar.Write(ctx, io.Discard, []overlaytar.Layer{{Upper: root}}, overlaytar.Options{Owner: func(u, g int) (int, int) { return u, g }, Most: 1 << 20})
	if !errors.Is(err, cause) {
		t.Errorf("Write returned %v, want the cause of its context", err)
	}
}
