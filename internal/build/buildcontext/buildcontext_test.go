package buildcontext_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/build/buildcontext"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// tree returns a directory with empty files.
func tree(t *testing.T, files ...string) (string, *os.Root) {
	t.Helper()
	return hosttest.Files(t, 0o644, files...)
}

// packed returns the context of a directory as a tar, and the names of its entries.
func packed(t *testing.T, root *os.Root, ignore *buildcontext.Ignore) ([]byte, []string) {
	t.Helper()
	var b bytes.Buffer
	if err := buildcontext.Pack(t.Context(), root, ignore, &b); err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(b.Bytes())); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.Bytes(), names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

func TestPackOmitsIgnoredFiles(t *testing.T) {
	_, root := tree(t, "a.txt", "b.log", "dir/a.log", "dir/keep.log", "dir/sub/x", "node_modules/m/i.js", "Dockerfile")
	for patterns, want := range map[string][]string{
		"":                              {"Dockerfile", "a.txt", "b.log", "dir/", "dir/a.log", "dir/keep.log", "dir/sub/", "dir/sub/x", "node_modules/", "node_modules/m/", "node_modules/m/i.js"},
		"*.log\nnode_modules":           {"Dockerfile", "a.txt", "dir/", "dir/a.log", "dir/keep.log", "dir/sub/", "dir/sub/x"},
		"**/*.log\n!**/keep.log\n**/m":  {"Dockerfile", "a.txt", "dir/", "dir/keep.log", "dir/sub/", "dir/sub/x", "node_modules/"},
		"*\n!dir/sub/x":                 {"dir/", "dir/sub/", "dir/sub/x"},
		"# comment\n/dir\nnode_modules": {"Dockerfile", "a.txt", "b.log"},
	} {
		ignore, err := buildcontext.ParseIgnore([]byte(patterns))
		if err != nil {
			t.Fatal(err)
		}
		if _, got := packed(t, root, ignore); !slices.Equal(got, want) {
			t.Errorf("Pack with patterns %q: got %q, want %q", patterns, got, want)
		}
	}
}

func TestFindIgnorePrefersDockerfileSpecificFile(t *testing.T) {
	dir, root := tree(t, "x", "y", "build/Dockerfile")
	for name, text := range map[string]string{".dockerignore": "x\n", "build/Dockerfile.dockerignore": "y\nbuild\n.dockerignore\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{"build/Dockerfile": "x", "Dockerfile": ".dockerignore build/ build/Dockerfile build/Dockerfile.dockerignore y", "../elsewhere": ".dockerignore build/ build/Dockerfile build/Dockerfile.dockerignore y"} {
		ignore, err := buildcontext.FindIgnore(root, file)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := packed(t, root, ignore); strings.Join(got, " ") != want {
			t.Errorf("FindIgnore(%s): got %q, want %s", file, got, want)
		}
	}
}

func TestUnpackRestoresPackedContext(t *testing.T) {
	dir, root := tree(t, "a", "d/b")
	if err := os.Symlink("../a", filepath.Join(dir, "d/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "a"), 0o751|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	ignore, err := buildcontext.ParseIgnore(nil)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := packed(t, root, ignore)
	to := t.TempDir()
	if err := buildcontext.Unpack(t.Context(), bytes.NewReader(data), to, buildcontext.DefaultLimits); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(to, "a"))
	if err != nil || info.Mode() != 0o751|fs.ModeSetuid {
		t.Errorf("Stat of the unpacked file: got mode %v, error %v, want 0751 with set-user-ID", info.Mode(), err)
	}
	if text, err := os.ReadFile(filepath.Join(to, "d/link")); err != nil || string(text) != "a" {
		t.Errorf("ReadFile through the link: got %q, error %v, want a", text, err)
	}
	if err := buildcontext.Unpack(t.Context(), bytes.NewReader(data), t.TempDir(), buildcontext.Limits{Entries: 100, Bytes: 2}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("Unpack beyond the limit: got %v, want Exhausted", err)
	}
}

// Pack reads no device, pipe or socket: a hostile repository could contain one.
func TestPackRejectsSpecialFiles(t *testing.T) {
	ignore, err := buildcontext.ParseIgnore([]byte("left\n"))
	if err != nil {
		t.Fatal(err)
	}
	dir, root := tree(t, "a")
	if err := unix.Mkfifo(filepath.Join(dir, "left"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := buildcontext.Pack(t.Context(), root, ignore, io.Discard); err != nil {
		t.Errorf("Pack with a pipe that is left out: %v", err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := buildcontext.Pack(t.Context(), root, ignore, io.Discard); fault.CodeOf(err) != buildcontext.CodeInvalid {
		t.Errorf("Pack with a pipe: got %v, want %s", err, buildcontext.CodeInvalid)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := buildcontext.Pack(canceled, root, ignore, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("Pack with a canceled context: got %v, want Canceled", err)
	}
}

// The client is not trusted: no entry is written outside the directory.
func TestUnpackRejectsHostileArchives(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	for name, entries := range map[string][]tar.Header{
		"an absolute name":   {{Name: outside, Typeflag: tar.TypeReg}},
		"a name outside":     {{Name: "../x", Typeflag: tar.TypeReg}},
		"dots in the middle": {{Name: "a/../../x", Typeflag: tar.TypeReg}},
		"through a link":     {{Name: "l", Linkname: filepath.Dir(outside), Typeflag: tar.TypeSymlink}, {Name: "l/outside", Typeflag: tar.TypeReg}},
		"over a link":        {{Name: "l", Linkname: outside, Typeflag: tar.TypeSymlink}, {Name: "l", Typeflag: tar.TypeReg}},
		"a device":           {{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"a pipe":             {{Name: "p", Typeflag: tar.TypeFifo}},
		"a hard link":        {{Name: "h", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}},
		"no name":            {{Name: "/", Typeflag: tar.TypeDir}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range entries {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := buildcontext.Unpack(t.Context(), &b, t.TempDir(), buildcontext.DefaultLimits); fault.CodeOf(err) != buildcontext.CodeInvalid {
			t.Errorf("%s: Unpack: error %v", name, err)
		}
		if _, err := os.Lstat(outside); err == nil {
			t.Fatalf("%s: a file was written outside", name)
		}
	}
	if err := buildcontext.Unpack(t.Context(), strings.NewReader("no tar at all, but long enough to be taken for a header of one"), t.TempDir(), buildcontext.DefaultLimits); fault.CodeOf(err) != buildcontext.CodeInvalid {
		t.Errorf("Unpack of text: got %v, want %s", err, buildcontext.CodeInvalid)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add("a/b", "c", byte(tar.TypeReg))
	f.Add("../x", "/etc", byte(tar.TypeSymlink))
	f.Fuzz(func(t *testing.T, name, link string, kind byte) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{{Name: name, Linkname: link, Typeflag: kind}, {Name: name + "/below", Typeflag: tar.TypeReg}} {
			if w.WriteHeader(&h) != nil {
				return
			}
		}
		if w.Close() != nil {
			return
		}
		top := t.TempDir()
		dir := filepath.Join(top, "in")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = buildcontext.Unpack(t.Context(), &b, dir, buildcontext.DefaultLimits)
		if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 {
			t.Errorf("Unpack of %q, %q: got files %v outside, error %v", name, link, entries, err)
		}
	})
}

func FuzzIgnore(f *testing.F) {
	f.Add("*\n!a/**/b\n")
	f.Add("[\n")
	f.Fuzz(func(t *testing.T, patterns string) {
		ignore, err := buildcontext.ParseIgnore([]byte(patterns))
		if err != nil {
			return
		}
		_, root := tree(t, "a/b/c", "d")
		if err := buildcontext.Pack(t.Context(), root, ignore, io.Discard); err != nil && fault.KindOf(err) != fault.Invalid {
			t.Errorf("Pack(%q): error %v", patterns, err)
		}
	})
}
