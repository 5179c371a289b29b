package changeset_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/filetree/toolfiles"
)

// examplesOf returns files that match an entry of the catalogue, and a similar file that does not
// match.
func examplesOf(e toolfiles.Entry) (matching []string, similar string) {
	kind, text := e.Form()
	switch kind {
	case toolfiles.Dir:
		return []string{text + "/x", text + "/deep/x"}, text + "x/x"
	case toolfiles.Suffix:
		return []string{"any" + text}, "any" + text + ".txt"
	case toolfiles.Prefix:
		return []string{text + "x"}, "x" + text + "x"
	default:
		return []string{text}, text + ".sample"
	}
}

func TestS7CatalogueEntriesAreFlagged(t *testing.T) {
	flagged := changeset.RunsFile
	for _, e := range toolfiles.Runs() {
		matching, similar := examplesOf(e)
		for _, name := range matching {
			for _, form := range []string{name, "deep/er/" + name, strings.ToUpper(name)} {
				if !flagged(form) {
					t.Errorf("%s (%s): %q is not flagged", e.Name, e.Tool, form)
				}
			}
		}
		if kind, text := e.Form(); kind == toolfiles.Prefix && strings.Contains(similar, "."+text) || kind == toolfiles.File && strings.HasSuffix(text, ".bazelrc") {
			continue
		}
		if flagged(similar) {
			t.Errorf("%s: %q is flagged", e.Name, similar)
		}
	}
	// These names were missing once.
	for _, name := range []string{".hg/hgrc", ".bazelrc", "tools/bazel", ".mvn/jvm.config", "rust-toolchain.toml", "opencode.json", ".roo/mcp.json", ".aider.conf.yml"} {
		if !flagged(name) {
			t.Errorf("%q is not flagged", name)
		}
	}
	for _, name := range []string{"jvm.config", "hgrc", "bazel", "src/tools.go", "mvn/jvm.config", "cargo/config.toml", "config.toml", "workflows/ci.yml", "github/workflows/ci.yml", "tools/bazel/x.go", "readme.md", "src/main.rs", "tsconfig.json"} {
		if flagged(name) {
			t.Errorf("%q is flagged", name)
		}
	}
}

func TestCatalogueIsValid(t *testing.T) {
	var names []string
	for _, e := range toolfiles.Runs() {
		if e.Name != strings.ToLower(e.Name) || e.Tool == "" || e.When == "" || strings.HasPrefix(e.Name, "/") || strings.Contains(e.Name, "**") {
			t.Errorf("invalid entry %+v", e)
		}
		names = append(names, e.Name)
	}
	slices.Sort(names)
	for i := range names[1:] {
		if names[i] == names[i+1] {
			t.Errorf("%q occurs twice", names[i])
		}
	}
}
