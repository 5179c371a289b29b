package changeset_test

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// flagged returns the flags of files that a sandbox creates.
func flagged(t *testing.T, files map[string]string, protected func(string) bool) map[string][]changeset.Flag {
	t.Helper()
	b := newTreeTest(t, nil)
	writeTree(t, b.inside, files)
	set, err := changeset.Compare(t.Context(), b.source, b.base, changeset.Options{Dir: "/workspace", Lines: true, Protected: protected})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]changeset.Flag{}
	for _, c := range set.Changes {
		all[c.Path] = c.Flags
	}
	return all
}

func TestFilesThatToolsRunAreFlagged(t *testing.T) {
	executed := []string{
		".git/hooks/pre-commit", "sub/.git/hooks/post-checkout", ".git/config", ".git/modules/lib/config", ".git/modules/lib/hooks/x", ".git/info/attributes",
		".git/worktrees/w/commondir", ".envrc", "deep/.envrc", ".vscode/tasks.json", ".idea/workspace.xml", ".claude/settings.json", ".cursor/mcp.json", ".codex/config.toml",
		".github/workflows/ci.yml", ".gitlab-ci.yml", ".circleci/config.yml", "Makefile", "GNUmakefile", "makefile", "setup.py", "tests/conftest.py", "x.pth",
		"sitecustomize.py", ".npmrc", ".pypirc", ".bashrc", ".zshenv", ".husky/pre-commit", ".gitattributes", ".gitmodules", "build.rs", ".cargo/config.toml",
		// These are the same names in letters that case-insensitive file systems treat as equal.
		".GIT/hooks/pre-commit", ".Git/Config", "x/.gI\u200cT/hooks/a", "y/.git\u200d/config", "z/git~1/hooks/a", "GITHUB~1/workflows/x.yml", "w/.git./hooks/a", "v/.git /hooks/a",
		"u/.git::$INDEX_ALLOCATION/hooks/a", "\uff0egit/hooks/a", ".vſcode/tasks.json", "s/.ENVRC", `r/.git\hooks\a`, "q/MAKEFILE", ".c\u200blaude/x", "o/.\u212bgit/.envrc",
		// Repositories that are not named .git.
		"bare/HEAD", "bare/config", "bare/hooks/post-update",
	}
	harmless := []string{
		"main.go", "git/hooks/x", ".gitignore", ".github/README.md", "docs/Makefile.md", "vscode/x", ".git/objects/aa/bb", "config", "hooks/x", "src/head", "envrc", "a~1", "settings.json", ".cargo/registry",
	}
	files := map[string]string{"bare/objects/x": "1"}
	for _, name := range slices.Concat(executed, harmless) {
		files[name] = "1"
	}
	got := flagged(t, files, nil)
	for _, name := range executed {
		if !slices.Contains(got[name], changeset.RunsByItself) {
			t.Errorf("%q is not flagged", name)
		}
	}
	for _, name := range harmless {
		if slices.Contains(got[name], changeset.RunsByItself) {
			t.Errorf("%q is flagged", name)
		}
	}
	// A link at the path of a directory has all files of its target.
	links := map[string]string{".git": "-> x", "sub/.github": "-> ../x", ".vscode": "-> x", ".claude": "-> x", "sub/.GIT": "-> ../x", "plain": "-> x"}
	got = flagged(t, links, nil)
	for name := range links {
		if slices.Contains(got[name], changeset.RunsByItself) != (name != "plain") {
			t.Errorf("link %q: got flags %v", name, got[name])
		}
	}
}

func TestPackageScriptsAreFlagged(t *testing.T) {
	before := `{"name": "x", "scripts": {"test": "vitest", "postinstall": "node good.js"}, "dependencies": {}}`
	for after, want := range map[string]bool{
		`{"name": "x", "scripts": {"test": "other", "postinstall": "node good.js"}, "dependencies": {"a": "1"}}`: false,
		`{"name": "x", "scripts": {"test": "vitest", "postinstall": "node evil.js"}}`:                            true,
		`{"name": "x", "scripts": {"prepare": "evil", "postinstall": "node good.js"}}`:                           true,
		`{"name": "x", "scripts": {"postinstall": "node good.js"}, "gypfile": true}`:                             true,
		`{"name": "x", "scripts": "`: true,
	} {
		b := newTreeTest(t, map[string]string{"package.json": before})
		put(t, filepath.Join(b.inside, "package.json"), after)
		if set := b.compare(t); set.Changes[0].Has(changeset.RunsByItself) != want {
			t.Errorf("package.json changed to %s: got flags %v", after, set.Changes[0].Flags)
		}
		// If the texts are not compared, every change is flagged.
		set, err := changeset.Compare(t.Context(), b.source, b.base, changeset.Options{Dir: "/workspace"})
		if err != nil || !set.Changes[0].Has(changeset.RunsByItself) {
			t.Errorf("Compare without texts: got %v, error %v", set, err)
		}
	}
}

func TestProtectedPathsIgnoreCase(t *testing.T) {
	protected := func(name string) bool { return path.Base(name) == "rules.md" }
	got := flagged(t, map[string]string{"rules.md": "1", "a/RULES.md": "1", "ru\u200cles.md": "1", "other.md": "1"}, protected)
	for name, want := range map[string]bool{"rules.md": true, "a/RULES.md": true, "ru\u200cles.md": true, "other.md": false} {
		if slices.Contains(got[name], changeset.Protected) != want {
			t.Errorf("%q: got flags %v", name, got[name])
		}
	}
	b := newTreeTest(t, map[string]string{"rules.md": "1"})
	if err := os.Remove(filepath.Join(b.inside, "rules.md")); err != nil {
		t.Fatal(err)
	}
	set, err := changeset.Compare(t.Context(), b.source, b.base, changeset.Options{Dir: "/workspace", Protected: protected})
	if err != nil || !set.Changes[0].Has(changeset.Protected) {
		t.Errorf("removed protected file: got %+v, error %v", set, err)
	}
}
