package changeset_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// Fetch does not return content that is no longer the listed one, because its inspection would not
// be about the change.
func TestFetch(t *testing.T) {
	dir := t.TempDir()
	var list []changeset.Change
	for _, name := range []string{"a", "b", "other", "size"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
		text := "text of " + name
		switch name {
		case "other":
			text = "text of OTHER"
		case "size":
			text = "more text of size"
		}
		list = append(list, changeset.Change{Path: name, Op: changeset.Created, New: &changeset.Entry{Path: name, Type: changeset.Regular, Size: int64(len(text)), Sum: sumOf(text)}})
	}
	list = append(list,
		changeset.Change{Path: "gone", Op: changeset.Removed, Old: &changeset.Entry{Path: "gone", Type: changeset.Regular, Size: 1}},
		changeset.Change{Path: "link", Op: changeset.Created, New: &changeset.Entry{Path: "link", Type: changeset.Link, Target: "a"}},
	)
	fetch := func(list []changeset.Change) (map[string]string, map[string]string) {
		into, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer into.Close()
		fetched, err := changeset.Fetch(t.Context(), treeSource{}, dir, list, into, changeset.Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{}
		for path, name := range fetched {
			text, err := into.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
		return fetched, texts
	}
	fetched, texts := fetch(list)
	if want := map[string]string{"a": "text of a", "b": "text of b"}; !maps.Equal(texts, want) {
		t.Errorf("Fetch: got texts %v in files %v, want %v", texts, fetched, want)
	}
	// If no change has content, the sandbox gets no request.
	if fetched, _ := fetch(list[4:]); len(fetched) != 0 {
		t.Errorf("Fetch without content: got %v", fetched)
	}
	into, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	if fetched, err := changeset.Fetch(t.Context(), treeSource{cut: true}, dir, list, into, changeset.Bounds{}); err == nil {
		t.Errorf("Fetch of a truncated stream: got %v and no error", fetched)
	}
	failed := errors.New("no sandbox")
	if _, err := changeset.Fetch(t.Context(), failingSource{err: failed}, dir, list, into, changeset.Bounds{}); !errors.Is(err, failed) {
		t.Errorf("Fetch without a sandbox: got %v, want %v", err, failed)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failed)
	if _, err := changeset.Fetch(ctx, treeSource{}, dir, list, into, changeset.Bounds{}); !errors.Is(err, failed) {
		t.Errorf("Fetch after the end of the context: got %v, want %v", err, failed)
	}
}

// failingSource is a source whose Pack fails.
type failingSource struct {
	changeset.Source
	err error
}

func (f failingSource) Pack(context.Context, changeset.PackRequest) (io.ReadCloser, error) {
	return nil, f.err
}

// Each path of a change is replaced, and the original change is not modified.
func TestChangeRenamed(t *testing.T) {
	original := changeset.Change{Path: "a", Old: &changeset.Entry{Path: "a", Size: 1}, New: &changeset.Entry{Path: "a", Size: 2}}
	got := original.Renamed(func(path string) string { return ".git/" + path })
	if paths := []string{got.Path, got.Old.Path, got.New.Path}; !slices.Equal(paths, []string{".git/a", ".git/a", ".git/a"}) || got.Outside != nil || got.New.Size != 2 {
		t.Errorf("Renamed: got paths %q and %+v", paths, got)
	}
	if original.Path != "a" || original.Old.Path != "a" || original.New.Path != "a" {
		t.Errorf("Renamed has modified the original: %+v", original)
	}
}
