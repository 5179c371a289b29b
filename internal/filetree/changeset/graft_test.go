package changeset_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/guest/tree"
)

// treeSource reads files from directories of this machine.
type treeSource struct {
	changeset.Source
	cut bool
}

func (treeSource) Redactor() changeset.Redactor { return nil }

func (b treeSource) Pack(_ context.Context, req changeset.PackRequest) (io.ReadCloser, error) {
	var out strings.Builder
	if err := tree.Pack(context.Background(), &out, req); err != nil {
		return nil, err
	}
	text := out.String()
	if b.cut {
		text = text[:len(text)/2]
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

// F3: a pack has the files of the repository and of the work tree in the requested order. A
// truncated stream is an error.
func TestF3GraftPacksBothSources(t *testing.T) {
	top, git := t.TempDir(), t.TempDir()
	for name, dir := range map[string]string{"a": top, "z": top, "refs/heads/x": git, "HEAD": git} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list := []changeset.Change{}
	for _, name := range []string{".git/HEAD", ".git/refs/heads/x", "a", "z"} {
		size := int64(len("text of ") + len(strings.TrimPrefix(name, ".git/")))
		list = append(list, changeset.Change{Path: name, Op: changeset.Created, New: &changeset.Entry{Path: name, Type: changeset.Regular, Size: size, Sum: sumOf("text of " + strings.TrimPrefix(name, ".git/"))}})
	}
	stage := func(source changeset.Source) ([]string, error) {
		into, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer into.Close()
		if _, err := changeset.Stage(t.Context(), source, top, list, into, changeset.Bounds{}); err != nil {
			return nil, err
		}
		var texts []string
		for _, n := range []string{"0", "1", "2", "3"} {
			text, err := into.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		return texts, nil
	}
	got, err := stage(changeset.Graft(treeSource{}, top, ".git", treeSource{}, git))
	if want := []string{"text of HEAD", "text of refs/heads/x", "text of a", "text of z"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Stage: got %q, error %v, want %q", got, err, want)
	}
	for name, source := range map[string]changeset.Source{
		"repository truncated":         changeset.Graft(treeSource{}, top, ".git", treeSource{cut: true}, git),
		"work tree truncated":          changeset.Graft(treeSource{cut: true}, top, ".git", treeSource{}, git),
		"repository without the files": changeset.Graft(treeSource{}, top, ".git", treeSource{}, t.TempDir()),
	} {
		if _, err := stage(source); fault.KindOf(err) == fault.Internal || err == nil {
			t.Errorf("Stage with a broken stream, %s: got error %v", name, err)
		}
	}
}
