package changes

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
)

// guarded are names of what tools of the host execute, or take orders from,
// without being asked to: when a directory is entered or opened, by git's own
// commands, or when dependencies are installed.
type guarded struct {
	files    []string // at any depth
	dirs     []string // with all that is in them
	below    [][2]string
	suffixes []string
}

var guards = sync.OnceValue(func() guarded {
	return guarded{
		files: []string{
			".envrc", ".gitattributes", ".gitmodules", ".gitconfig", ".mcp.json",
			".gitlab-ci.yml", ".travis.yml", ".drone.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml", "appveyor.yml", "jenkinsfile",
			"makefile", "gnumakefile", "build.rs", "directory.build.props", "directory.build.targets",
			".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "bunfig.toml", "binding.gyp",
			"setup.py", "conftest.py", "sitecustomize.py", "usercustomize.py", ".pypirc", "pip.conf",
			".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".inputrc",
			".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".gdbinit", ".lldbinit",
			".pre-commit-config.yaml", "lefthook.yml", ".lefthook.yml", "mise.toml", ".mise.toml",
		},
		dirs: []string{
			".vscode", ".idea", ".zed", ".fleet", ".devcontainer", ".claude", ".cursor", ".codex", ".gemini", ".opencode", ".windsurf", ".continue",
			".husky", ".githooks", ".circleci", ".buildkite", ".woodpecker", ".mise",
		},
		below: [][2]string{
			{".github", "workflows"}, {".github", "actions"}, {".gitea", "workflows"}, {".forgejo", "workflows"},
			{".cargo", "config"}, {".cargo", "config.toml"}, {".yarn", "plugins"}, {".yarn", "releases"},
		},
		suffixes: []string{".pth", ".code-workspace"},
	}
})

// runsByItself tells whether tools of the host would execute a file, or what
// it names, unasked. e is what it is now or was.
func runsByItself(name string, e *Entry) bool {
	g, parts := guards(), foldPath(name)
	for i, part := range parts {
		is := func(name string) bool { return isName(part, name) }
		last := i == len(parts)-1
		switch {
		case is(".git"):
			if gitRuns(parts[i+1:], e) {
				return true
			}
		case slices.ContainsFunc(g.dirs, is):
			if !last || e.Type != Dir {
				return true
			}
		case last && (slices.ContainsFunc(g.files, is) || slices.ContainsFunc(g.suffixes, func(s string) bool { return strings.HasSuffix(part, s) })):
			return e.Type != Dir
		}
		for _, b := range g.below {
			if !is(b[0]) {
				continue
			}
			// A link in place of the upper directory brings the lower one along.
			if last && e.Type != Dir || !last && isName(parts[i+1], b[1]) {
				return true
			}
		}
	}
	return false
}

// gitRuns tells whether git would run a file below a .git, or be told by it
// what to run.
func gitRuns(rest []string, e *Entry) bool {
	if len(rest) == 0 {
		return e.Type != Dir // it leads to a repository elsewhere
	}
	for i, part := range rest {
		switch {
		case isName(part, "hooks"), isName(part, "rebase-merge"), isName(part, "rebase-apply"):
			return true
		case i < len(rest)-1:
		case isName(part, "config"), isName(part, "config.worktree"), isName(part, "attributes"), isName(part, "commondir"), isName(part, "gitdir"):
			return true
		}
	}
	return e.Type == Link
}

// repository tells whether a path would be run, or obeyed, by git because its
// directory is a repository, though it is not called .git.
func repository(name string, has func(path string) bool) bool {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		switch fold(part) {
		case "hooks", "config", "head", "commondir":
		default:
			continue
		}
		above := strings.Join(parts[:i], "/")
		if above != "" {
			above += "/"
		}
		if has(above+"HEAD") && (has(above+"objects") || has(above+"commondir")) {
			return true
		}
	}
	return false
}

// lifecycle are scripts of a package that are run when it, or what needs it,
// is installed or packed.
var lifecycle = []string{
	"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare", "prepublishonly", "prepack", "postpack", "dependencies",
}

// sameScripts tells whether what a package runs by itself is what it was. What
// cannot be read is not the same.
func sameScripts(x, y []byte) bool {
	before, ok1 := scripts(x)
	after, ok2 := scripts(y)
	return ok1 && ok2 && maps.EqualFunc(before, after, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}

func scripts(text []byte) (map[string]json.RawMessage, bool) {
	var p map[string]json.RawMessage
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, true
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, false
	}
	all := map[string]json.RawMessage{}
	if p["gypfile"] != nil {
		all["gypfile"] = p["gypfile"]
	}
	var s map[string]json.RawMessage
	if p["scripts"] != nil && json.Unmarshal(p["scripts"], &s) != nil {
		return nil, false
	}
	for name, command := range s {
		if slices.Contains(lifecycle, strings.ToLower(name)) {
			all[name] = command
		}
	}
	return all, true
}
