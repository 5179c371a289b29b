package library_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/archive"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
)

// publishSameSize publishes images of the same unpacked size.
func publishSameSize(t *testing.T, host string, names ...string) {
	t.Helper()
	for _, name := range names {
		imagetest.Publish(t, host+"/"+name+":1", appImage(t, name+strings.Repeat("\x00", 1<<20)))
	}
}

// usedAt sets when an image was last used.
func usedAt(t *testing.T, l *library.Library, ref string, at time.Time) {
	t.Helper()
	img, err := l.Inspect(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(filepath.Dir(img.Root.Tree()), "root.json"), at, at); err != nil {
		t.Fatal(err)
	}
}

// namesOf returns the short names of the library's images.
func namesOf(t *testing.T, l *library.Library, host string) (list []string) {
	t.Helper()
	images, err := l.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		list = append(list, strings.TrimSuffix(strings.TrimPrefix(img.Name, host+"/"), ":1"))
	}
	return list
}

// Images that are not in use and can be pulled again are removed to make room, the least recently
// used first.
func TestPullRemovesUnusedImages(t *testing.T) {
	host, dir := imagetest.Registry(t), t.TempDir()
	publishSameSize(t, host, "a", "b", "c", "d", "e")
	l := openLibrary(t, dir, host, func(o *library.Options) { o.Budget = 3<<20 + 512<<10 })
	for i, name := range []string{"a", "b", "c"} {
		if _, err := l.Pull(t.Context(), host+"/"+name+":1", "", ignore); err != nil {
			t.Fatal(name, err)
		}
		usedAt(t, l, host+"/"+name+":1", time.Now().Add(time.Duration(i-10)*time.Minute))
	}
	img, err := l.Inspect(host + "/a:1")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{img.Root.Tree(): true}
	l.Protect(func(context.Context) (map[string]bool, error) { return used, nil })
	if _, err := l.Pull(t.Context(), host+"/d:1", "", ignore); err != nil {
		t.Fatal(err)
	}
	// A sandbox uses a, and b was used before c.
	if got := namesOf(t, l, host); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("remaining images: got %v", got)
	}
	// All images are in use, so none is removed.
	for _, name := range []string{"c", "d"} {
		img, err := l.Inspect(host + "/" + name + ":1")
		if err != nil {
			t.Fatal(err)
		}
		used[img.Root.Tree()] = true
	}
	if _, err := l.Pull(t.Context(), host+"/e:1", "", ignore); fault.CodeOf(err) != library.CodeBudget {
		t.Errorf("Pull while all images are in use: got %v, want %s", err, library.CodeBudget)
	}
	if got := namesOf(t, l, host); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("remaining images: got %v", got)
	}
	// An image that was just used stays, although no sandbox uses it yet.
	clear(used)
	soon := openLibrary(t, dir, host, func(o *library.Options) { o.Budget, o.Grace = 3<<20+512<<10, time.Hour })
	if _, err := soon.Pull(t.Context(), host+"/e:1", "", ignore); fault.CodeOf(err) != library.CodeBudget {
		t.Errorf("Pull while all images were just used: got %v, want %s", err, library.CodeBudget)
	}
}

// An image from a file cannot be pulled again, so it is not removed. The budget also limits
// imports.
func TestImportedImagesAreNotRemoved(t *testing.T) {
	host := imagetest.Registry(t)
	publishSameSize(t, host, "a", "b")
	from := openLibrary(t, t.TempDir(), host)
	file := map[string]string{}
	for _, name := range []string{"a", "b"} {
		if _, err := from.Pull(t.Context(), host+"/"+name+":1", "", ignore); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := from.Export(t.Context(), host+"/"+name+":1", archive.OCI, &b); err != nil {
			t.Fatal(err)
		}
		file[name] = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file[name], b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := openLibrary(t, t.TempDir(), host, func(o *library.Options) { o.Budget = 1<<20 + 512<<10 })
	if _, err := l.Import(t.Context(), file["a"], "", "", ignore); err != nil {
		t.Fatal(err)
	}
	usedAt(t, l, host+"/a:1", time.Now().Add(-time.Hour))
	for what, add := range map[string]func() error{
		"import": func() error { _, err := l.Import(t.Context(), file["b"], "", "", ignore); return err },
		"pull":   func() error { _, err := l.Pull(t.Context(), host+"/b:1", "", ignore); return err },
	} {
		if err := add(); fault.CodeOf(err) != library.CodeBudget {
			t.Errorf("%s: got %v, want code %s", what, err, library.CodeBudget)
		}
	}
	if got := namesOf(t, l, host); !slices.Equal(got, []string{"a"}) {
		t.Errorf("remaining images: got %v", got)
	}
	small := openLibrary(t, t.TempDir(), host, func(o *library.Options) { o.Budget = 100 })
	if _, err := small.Import(t.Context(), file["a"], "", "", ignore); fault.CodeOf(err) != library.CodeBudget {
		t.Errorf("Import beyond the budget: got %v, want %s", err, library.CodeBudget)
	}
}
