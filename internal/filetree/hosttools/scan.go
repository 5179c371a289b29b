package hosttools

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/toolfiles"
)

// Limits of the search for credentials. A toolchain may have 200,000 files, and reading all their
// names would take longer than the sandbox's start. Credentials are where tools look for them, near
// the top of an installation.
const scanDepth = 5

var maxScan = 50_000 // a variable for the test

// packageDirs are names of directories that contain only files of packages.
var packageDirs = map[string]bool{"lib": true, "lib64": true, "libexec": true, "share": true, "include": true, "node_modules": true, "site-packages": true, "pkgs": true, "doc": true, "docs": true, "man": true}

// settings are files of a version that configure registries and their tokens.
var settings = []string{"npmrc", ".npmrc", "pip.conf", ".pypirc", ".condarc", "condarc", "credentials", "credentials.toml", ".env"}

// Credentials returns the paths below a tree that are never shown: files in which tools store
// credentials, and the history of a manager's own checkout. denied reports which other paths are
// not shown.
func (t Tree) Credentials(denied func(path string, dir bool) bool) ([]string, error) {
	credential := toolfiles.Matching(toolfiles.Credentials())
	secret := func(name string, dir bool) bool {
		base := strings.ToLower(path.Base(name))
		// The config of a checkout may contain a token in the URL of a remote.
		return dir && base == ".git" || !dir && slices.Contains(settings, base) || credential(name)
	}
	var hide []string
	seen := 0
	err := filepath.WalkDir(t.Source, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				if d != nil && d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			return err
		}
		if name == t.Source {
			return nil
		}
		if seen++; seen > maxScan {
			return fault.Newf(fault.Exhausted, "tools_too_large", "%s has more than %d files in its upper directories, which are searched for credentials", t.Dir, maxScan).
				WithHint("select only the needed version managers, without " + t.Manager)
		}
		rel, err := filepath.Rel(t.Source, name)
		if err != nil {
			return err
		}
		hidden := secret(path.Join(path.Base(filepath.Dir(t.Dir)), path.Base(t.Dir), filepath.ToSlash(rel)), d.IsDir()) || denied(filepath.Join(t.Dir, rel), d.IsDir())
		switch {
		case hidden && d.Type()&fs.ModeSymlink != 0:
			return nil // its target is hidden itself, or is not in the sandbox
		case hidden:
			hide = append(hide, rel)
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir() && (packageDirs[d.Name()] || strings.Count(rel, "/") >= scanDepth-1):
			return fs.SkipDir
		}
		return nil
	})
	return hide, err
}
