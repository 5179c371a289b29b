// Package hosttools owns the knowledge about version managers: where pyenv, nvm, cargo and others
// install programs in a home directory, and which of those directories a sandbox may see. It
// changes nothing on the host and starts no program.
package hosttools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// All is the name that stands for all installed managers.
const All = "all"

// MaxTrees bounds the number of directories that one sandbox can see.
const MaxTrees = 24

// Host is a home directory and environment in which version managers are searched.
type Host struct {
	Home string
	// Variable returns the value of an environment variable, which may change a manager's
	// directory. Nil means that there are none.
	Variable func(name string) string
	// Private lists directories that are never shown, and neither are directories that contain
	// them: the server's state, which contains the tokens of all sandboxes.
	Private []string
}

// Tree is one directory of a version manager as a sandbox sees it.
type Tree struct {
	Manager string `json:"manager"`
	// Dir is the path that programs use, on the host and in the sandbox. Source is the
	// real path, with links resolved.
	Dir    string `json:"dir"`
	Source string `json:"source"`
	// Bin lists the directories with programs, below Dir.
	Bin []string `json:"bin,omitempty"`
	// Env is set in the sandbox.
	Env map[string]string `json:"env,omitempty"`
	// Copy has small files of the home directory that the manager needs, by name.
	Copy map[string][]byte `json:"-"`
}

// excluded are paths below which no tree is shown, because a sandbox already sees them or has its
// own.
var excluded = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/sys", "/dev", "/run", "/tmp", "/var", "/boot", "/workspace", "/.crannog"}

// Find returns the trees of the named managers. A named manager that is not installed is a NotFound
// error. All selects the installed ones.
func (h Host) Find(names []string) ([]Tree, error) {
	var trees []Tree
	for _, name := range names {
		if name == All {
			continue
		}
		if !slices.ContainsFunc(managers, func(m manager) bool { return m.name == name }) {
			return nil, fault.Newf(fault.Invalid, "tools_unknown", "unknown version manager %q", name).
				WithHint("use one of " + strings.Join(Names(), ", ") + ", and all")
		}
	}
	for _, m := range managers {
		named := slices.Contains(names, m.name)
		if !named && !slices.Contains(names, All) {
			continue
		}
		found := h.trees(m)
		if len(found) == 0 && named {
			return nil, fault.Newf(fault.NotFound, "tools_not_found", "%s is not installed: there is no %s", m.name, h.roots(m)[0])
		}
		trees = append(trees, found...)
	}
	if len(trees) > MaxTrees {
		return nil, fault.Newf(fault.Exhausted, "tools_too_many", "the version managers have %d directories, above the limit of %d", len(trees), MaxTrees).
			WithHint("select only the needed ones")
	}
	return trees, nil
}

// trees returns the existing directories of one manager that may be shown.
func (h Host) trees(m manager) []Tree {
	for _, root := range h.roots(m) {
		var trees []Tree
		for _, show := range m.show {
			dir := filepath.Join(root, show)
			source, ok := h.mayShow(dir)
			if !ok {
				continue
			}
			trees = append(trees, Tree{Manager: m.name, Dir: dir, Source: source})
		}
		if len(trees) == 0 {
			continue
		}
		h.describe(m, root, trees)
		return trees
	}
	return nil
}

// describe adds the settings that programs in the sandbox need for a manager's directories.
func (h Host) describe(m manager, root string, trees []Tree) {
	for _, pattern := range m.bin {
		// The pattern is constant and well-formed.
		dirs, _ := filepath.Glob(filepath.Join(root, pattern))
		slices.SortFunc(dirs, newestFirst)
		for _, dir := range dirs {
			i := slices.IndexFunc(trees, func(t Tree) bool { return within(dir, t.Dir) })
			if info, err := os.Stat(dir); i >= 0 && err == nil && info.IsDir() {
				trees[i].Bin = append(trees[i].Bin, dir)
			}
		}
	}
	if m.inside != "" {
		trees[0].Env = map[string]string{m.inside: root}
	}
	for _, name := range m.files {
		if text, err := readSmall(filepath.Join(h.Home, name)); err == nil {
			trees[0].Copy = map[string][]byte{name: text}
		}
	}
}

// roots returns the directories where a manager may be installed, most likely first.
func (h Host) roots(m manager) []string {
	var roots []string
	if m.variable != "" && h.Variable != nil {
		if dir := h.Variable(m.variable); filepath.IsAbs(dir) {
			roots = append(roots, filepath.Clean(dir))
		}
	}
	for _, place := range m.places {
		roots = append(roots, filepath.Join(h.Home, place))
	}
	return roots
}

// mayShow reports whether a directory exists and may be shown, and returns its real path. The home
// directory, its parents and directories that every sandbox sees may not be shown: a variable such
// as CARGO_HOME=$HOME would expose all keys in it.
func (h Host) mayShow(dir string) (source string, ok bool) {
	if h.Home == "" || !filepath.IsAbs(h.Home) {
		return "", false
	}
	source, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", false
	}
	info, err := os.Stat(source)
	if err != nil || !info.IsDir() {
		return "", false
	}
	for _, place := range excluded {
		if dir == place || within(dir, place) && !within(dir, h.Home) {
			return "", false
		}
	}
	for _, private := range append([]string{h.Home}, h.Private...) {
		if real, err := filepath.EvalSymlinks(private); err == nil {
			private = real
		}
		if within(private, source) {
			return "", false
		}
	}
	for _, private := range h.Private {
		if within(source, private) {
			return "", false
		}
	}
	return source, true
}

// within reports whether a path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
