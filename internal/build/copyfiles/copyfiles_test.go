package copyfiles_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/build/copyfiles"
	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// source returns a build context with empty files, and its directory.
func source(t *testing.T, files ...string) (string, copyfiles.Source) {
	t.Helper()
	dir, root := hosttest.Files(t, 0o640, files...)
	return dir, copyfiles.Source{Root: root, What: "the build context"}
}

// layerOf returns the names in a layer and its digest.
func layerOf(t *testing.T, write func(*layertar.Writer) error) (names []string, digest string) {
	t.Helper()
	dir := t.TempDir()
	w, err := layertar.New(dir, time.Unix(1_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := write(w); err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.Store(t.Context(), blobs)
	if err != nil {
		t.Fatal(err)
	}
	f, err := blobs.Open(l.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := layer.Uncompress(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if err != nil {
			return names, l.DiffID.Hex
		}
		if h.ModTime.Unix() > 1_000_000 {
			t.Errorf("%s has the time %v, which is after the latest one", h.Name, h.ModTime)
		}
		names = append(names, h.Name)
	}
}

func TestCopyDestinations(t *testing.T) {
	_, src := source(t, "a", "b.md", "dir/x", "dir/sub/y.md", "dir/sub/z")
	stage := map[string]bool{"": true, "is": true}
	over := func(name string) (string, fs.FileInfo, error) {
		if !stage[name] {
			return name, nil, fs.ErrNotExist
		}
		info, err := os.Stat("/")
		return name, info, err
	}
	for _, c := range []struct {
		patterns []string
		to       string
		o        copyfiles.Options
		want     []string
	}{
		{[]string{"a"}, "/b", copyfiles.Options{}, []string{"b"}},
		{[]string{"a"}, "/is", copyfiles.Options{}, []string{"is/a"}},
		{[]string{"a"}, "/new/", copyfiles.Options{}, []string{"new/", "new/a"}},
		{[]string{"a", "b.md"}, "/is/", copyfiles.Options{}, []string{"is/a", "is/b.md"}},
		{[]string{"dir"}, "/is", copyfiles.Options{}, []string{"is/sub/", "is/sub/y.md", "is/sub/z", "is/x"}},
		{[]string{"dir"}, "/new", copyfiles.Options{}, []string{"new/", "new/sub/", "new/sub/y.md", "new/sub/z", "new/x"}},
		{[]string{"dir"}, "/", copyfiles.Options{Exclude: []string{"**/*.md"}}, []string{"sub/", "sub/z", "x"}},
		{[]string{"."}, "/is", copyfiles.Options{Exclude: []string{"*.md"}}, []string{"is/a", "is/dir/", "is/dir/sub/", "is/dir/sub/y.md", "is/dir/sub/z", "is/dir/x"}},
		{[]string{"[ab]*"}, "/is/", copyfiles.Options{Exclude: []string{"*.md"}}, []string{"is/a"}},
		{[]string{"d*/sub/*"}, "/is/", copyfiles.Options{}, []string{"is/y.md", "is/z"}},
		{[]string{"dir/sub/z"}, "/is/", copyfiles.Options{Parents: true}, []string{"is/dir/", "is/dir/sub/", "is/dir/sub/z"}},
		{[]string{"dir/./sub/z"}, "/is/", copyfiles.Options{Parents: true}, []string{"is/sub/", "is/sub/z"}},
		{[]string{"."}, "/is/", copyfiles.Options{Exclude: []string{"dir"}}, []string{"is/a", "is/b.md"}},
	} {
		s := &copyfiles.Selection{}
		if err := s.Select(t.Context(), src, c.patterns, c.o); err != nil {
			t.Errorf("Select(%q): error %v", c.patterns, err)
			continue
		}
		got, _ := layerOf(t, func(w *layertar.Writer) error { return s.Write(w, copyfiles.Destination{Path: c.to, Over: over}) })
		if !slices.Equal(got, c.want) {
			t.Errorf("copy %q to %s: got %q, want %q", c.patterns, c.to, got, c.want)
		}
	}
}

func TestSelectionDigestCoversContent(t *testing.T) {
	dir, src := source(t, "a", "d/b")
	digest := func() string {
		t.Helper()
		s := &copyfiles.Selection{}
		if err := s.Select(t.Context(), src, []string{"."}, copyfiles.Options{}); err != nil {
			t.Fatal(err)
		}
		d, err := s.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := digest()
	if err := os.Chtimes(filepath.Join(dir, "a"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if digest() != first {
		t.Error("a changed time changed the digest")
	}
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"content", func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("A"), 0o640) }},
		{"mode", func() error { return os.Chmod(filepath.Join(dir, "d/b"), 0o600) }},
		{"a name", func() error { return os.Rename(filepath.Join(dir, "d/b"), filepath.Join(dir, "d/c")) }},
		{"a link", func() error { return os.Symlink("a", filepath.Join(dir, "l")) }},
	} {
		before := digest()
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if digest() == before {
			t.Errorf("a change of %s did not change the digest", c.what)
		}
	}
}

// Links in a context copy nothing from outside it, and no pipe is read.
func TestSelectRejectsFilesOutsideSource(t *testing.T) {
	dir, src := source(t, "d/a")
	for name, to := range map[string]string{"out": "/etc/hostname", "up": "../../../etc", "d/inner": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []string{"out", "up", "up/passwd", "none", "d/../../x", "n*"} {
		s := &copyfiles.Selection{}
		if err := s.Select(t.Context(), src, []string{pattern}, copyfiles.Options{}); err == nil || len(s.Items) > 0 {
			t.Errorf("Select(%s): got %d files, error %v", pattern, len(s.Items), err)
		}
	}
	s := &copyfiles.Selection{}
	if err := s.Select(t.Context(), src, []string{"d"}, copyfiles.Options{}); err != nil {
		t.Fatal(err)
	}
	// A link in a directory is copied as a link.
	if got, _ := layerOf(t, func(w *layertar.Writer) error { return s.Write(w, copyfiles.Destination{Path: "/d"}) }); !slices.Equal(got, []string{"d/", "d/a", "d/inner"}) {
		t.Errorf("copy of a directory with a link: got %q", got)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "d/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&copyfiles.Selection{}).Select(t.Context(), src, []string{"d"}, copyfiles.Options{}); fault.CodeOf(err) != "build_file_refused" {
		t.Errorf("Select of a pipe: got %v, want build_file_refused", err)
	}
}

func TestParseMode(t *testing.T) {
	for text, want := range map[string][2]int64{
		"644": {0o644, 0o644}, "4755": {0o4755, 0o4755}, "u=rwX,go=rX": {0o644, 0o755}, "a+x": {0o751, 0o751}, "go-rwx": {0o600, 0o700}, "+r": {0o644, 0o754},
	} {
		mode, err := copyfiles.ParseMode(text)
		if err != nil {
			t.Errorf("ParseMode(%s): error %v", text, err)
			continue
		}
		if got := [2]int64{(*mode)(0o640, false), (*mode)(0o750, true)}; got != want {
			t.Errorf("mode %s: got %o, want %o", text, got, want)
		}
	}
	for _, text := range []string{"", "9", "x", "u", "u=q", "77777"} {
		if _, err := copyfiles.ParseMode(text); err == nil {
			t.Errorf("ParseMode(%q): got no error", text)
		}
	}
}

func TestAddUnpacksArchives(t *testing.T) {
	dir, src := source(t, "plain")
	pack := func(name string, headers ...tar.Header) {
		t.Helper()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	pack("good.tar", tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, tar.Header{Name: "d/f", Mode: 0o644}, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "d/f"})
	pack("bad.tar", tar.Header{Name: "../f", Mode: 0o644})
	pack("worse.tar", tar.Header{Name: "n", Typeflag: tar.TypeBlock})
	pack("whiteout.tar", tar.Header{Name: "d/.wh.f"})
	for name, want := range map[string][]string{"good.tar": {"to/", "to/d/", "to/d/f", "to/h"}, "bad.tar": nil, "worse.tar": nil, "whiteout.tar": nil} {
		s := &copyfiles.Selection{}
		if err := s.Select(t.Context(), src, []string{name}, copyfiles.Options{}); err != nil {
			t.Fatal(err)
		}
		archives, err := s.TakeArchives()
		if err != nil || len(archives) != 1 || len(s.Items) != 0 {
			t.Fatalf("%s: TakeArchives: got %d archives, error %v, want one", name, len(archives), err)
		}
		var failed error
		got, _ := layerOf(t, func(w *layertar.Writer) error {
			failed = archives[0].Write(w, copyfiles.Destination{Path: "/to/"})
			return nil
		})
		if want == nil && fault.CodeOf(failed) != "build_archive_invalid" || want != nil && (failed != nil || !slices.Equal(got, want)) {
			t.Errorf("%s: got files %q, error %v", name, got, failed)
		}
	}
	s := &copyfiles.Selection{}
	if err := s.Select(t.Context(), src, []string{"plain"}, copyfiles.Options{}); err != nil {
		t.Fatal(err)
	}
	if archives, err := s.TakeArchives(); err != nil || len(archives) != 0 || len(s.Items) != 1 {
		t.Errorf("TakeArchives of a plain file: got %d archives, error %v, want none", len(archives), err)
	}
}
