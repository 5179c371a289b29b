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

// Content that is no longer the listed one is not returned, because an inspection would be about
// another change.
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
		came, err := changeset.Fetch(t.Context(), treeSource{}, dir, list, into, changeset.Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{}
		for path, name := range came {
			text, err := into.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
		return came, texts
	}
	came, texts := fetch(list)
	if want := map[string]string{"a": "text of a", "b": "text of b"}; !maps.Equal(texts, want) {
		t.Errorf("%v as %v, want %v", texts, came, want)
	}
	// If no change has content, the sandbox gets no request.
	if came, _ := fetch(list[4:]); len(came) != 0 {
		t.Errorf("fetch: got %v", came)
	}
	into, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	if came, err := changeset.Fetch(t.Context(), treeSource{cut: true}, dir, list, into, changeset.Bounds{}); err == nil {
		t.Errorf("of a truncated stream came %v", came)
	}
	failed := errors.New("no sandbox")
	if _, err := changeset.Fetch(t.Context(), failing{err: failed}, dir, list, into, changeset.Bounds{}); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(failed)
	if _, err := changeset.Fetch(ctx, treeSource{}, dir, list, into, changeset.Bounds{}); !errors.Is(err, failed) {
		t.Errorf("after the end of the context: %v", err)
	}
}

// failing is a source without a sandbox.
type failing struct {
	changeset.Source
	err error
}

func (f failing) Pack(context.Context, changeset.PackRequest) (io.ReadCloser, error) {
	return nil, f.err
}

// Each path of a change is replaced, and the original change is not modified.
func TestRenamed(t *testing.T) {
	was := changeset.Change{Path: "a", Old: &changeset.Entry{Path: "a", Size: 1}, New: &changeset.Entry{Path: "a", Size: 2}}
	got := was.Renamed(func(path string) string { return ".git/" + path })
	if paths := []string{got.Path, got.Old.Path, got.New.Path}; !slices.Equal(paths, []string{".git/a", ".git/a", ".git/a"}) || got.Outside != nil || got.New.Size != 2 {
		t.Errorf("Renamed(%q): got %+v", paths, got)
	}
	if was.Path != "a" || was.Old.Path != "a" || was.New.Path != "a" {
		t.Errorf("the original is %+v", was)
	}
}
