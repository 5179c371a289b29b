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
		os.WriteFile(filepath.Join(dir, "made"), []byte("with the sandbox"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, dir, at string, change func(*overlaytar.Options)) (map[string]*tar.Header, map[string]string, error) {
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
	if err := overlaytar.Write(t.Context(), &w, []overlaytar.Layer{{Upper: root, Path: at}}, o); err != nil {
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

func TestKindsOfFiles(t *testing.T) {
	got, contents, err := write(t, layer(t), "usr", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"usr/": "5 ", "usr/d/": "5 ", "usr/d/e/": "5 ", "usr/d/f": "0 ", "usr/d/hard": "1 usr/d/f", "usr/link": "2 /etc/passwd", "usr/pipe": "6 ", "usr/made": "0 ",
	} {
		h := got[name]
		if h == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		if have := fmt.Sprintf("%c %s", h.Typeflag, h.Linkname); have != want {
			t.Errorf("%s: %q, want %q", name, have, want)
		}
		if h.Uid != os.Getuid()+7 || h.Gid != os.Getgid()+8 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %q", name, h.Uid, h.Gid, h.Uname)
		}
	}
	if len(got) != 8 || contents["usr/d/f"] != "content" || got["usr/d/f"].Mode != 0o640 {
		t.Errorf("%d entries, %q, %o", len(got), contents["usr/d/f"], got["usr/d/f"].Mode)
	}
}

// A file that was created with the sandbox counts as changed only after a program has changed it.
func TestFilesMadeWithTheSandboxAreLeftOut(t *testing.T) {
	dir := layer(t)
	made := func(o *overlaytar.Options) {
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, "made"), &stat); err != nil {
			t.Fatal(err)
		}
		o.Unchanged = map[string]time.Time{"made": time.Unix(stat.Ctim.Unix())}
	}
	var then overlaytar.Options
	made(&then)
	before, _, err := write(t, dir, "", func(o *overlaytar.Options) { o.Unchanged = then.Unchanged })
	if err != nil || before["made"] != nil || before["d/f"] == nil {
		t.Errorf("as it was made: %v %v", before["made"], err)
	}
	then.Unchanged["made"] = then.Unchanged["made"].Add(-time.Nanosecond)
	after, _, err := write(t, dir, "", func(o *overlaytar.Options) { o.Unchanged = then.Unchanged })
	if err != nil || after["made"] == nil {
		t.Errorf("changed since: %v %v", after["made"], err)
	}
}

func TestAttributesOfUsersAndOpaqueDirectories(t *testing.T) {
	dir := layer(t)
	for name, value := range map[string]string{"user.mine": "x\x00y", "user.overlay.opaque": "y", "user.overlay.origin": "z"} {
		err := unix.Setxattr(filepath.Join(dir, "d"), name, []byte(value), 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
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
		t.Errorf("%q, want %q", records, want)
	}
}

// A sandbox can make files of any size at no cost.
func TestSizeIsBounded(t *testing.T) {
	dir := layer(t)
	if err := os.Truncate(filepath.Join(dir, "made"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, _, err := write(t, dir, "", nil); !errors.Is(err, overlaytar.ErrTooLarge) {
		t.Errorf("a tebibyte of nothing: %v", err)
	}
}

func TestContextEndsIt(t *testing.T) {
	root, err := os.OpenRoot(layer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	because := errors.New("the caller has left")
	cancel(because)
	err = overlaytar.Write(ctx, io.Discard, []overlaytar.Layer{{Upper: root}}, overlaytar.Options{Owner: func(u, g int) (int, int) { return u, g }, Most: 1 << 20})
	if !errors.Is(err, because) {
		t.Errorf("%v", err)
	}
}
