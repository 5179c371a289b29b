package rootfs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/hosttools"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// ToolsDir is the directory of the version managers inside. Links at the host's paths point to it,
// because the managers' own programs contain these paths.
const ToolsDir = "/.crannog/tools"

// ToolPath returns the path inside of the directory with a number, counting from 1.
func ToolPath(number int) string { return ToolsDir + "/" + strconv.Itoa(number) }

// ResolveTools finds the version managers that a request names. A request for all gets those that
// are installed and that the policy allows. A manager that is requested by name must be both.
func ResolveTools(settings sandbox.Settings, names []string, p *policy.Policy, from *sandbox.Stored) ([]hosttools.Tree, error) {
	named := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == hosttools.All })
	switch {
	case from != nil && len(named) == 0:
		if from.FilesOnly && p.Files().Tools {
			return from.Base.Tools, nil // it boots again, and its files refer to them
		}
		return nil, nil
	case from != nil:
		return nil, fault.New(fault.Invalid, "snapshot_programs", "the version managers of a snapshot cannot be changed").
			WithHint("omit the tools")
	case len(names) == 0:
		return nil, nil
	case !p.Files().Tools:
		if len(named) == 0 {
			return nil, nil
		}
		return nil, fault.New(fault.Denied, "policy_denies_tools", "the policy does not allow programs of version managers in the home directory").
			WithHint("filesystem.tools: allow, or a level other than strict")
	}
	return settings.Tools.Find(names)
}

// AddTools adds the directories of version managers to a template.
func AddTools(t *sandbox.Template, trees []hosttools.Tree) (err error) {
	if len(trees) == 0 {
		return nil
	}
	t.Tools = trees
	var binds []engine.Bind
	env := maps.Clone(t.Env)
	if env == nil {
		env = map[string]string{}
	}
	for i, tree := range trees {
		binds = append(binds, engine.Bind{Source: tree.Source, Target: ToolPath(i + 1), Owned: true})
		AddEnv(env, tree.Env)
	}
	t.Env = env
	if t.Image, err = t.Image.Show(binds...); err != nil {
		return err
	}
	t.Revision += toolsRevision(t.Image)
	return nil
}

// toolsRevision identifies the state of version managers' directories. An installation changes the
// times of the upper directories, and reading all files of a toolchain would take longer than a
// start.
func toolsRevision(image engine.Image) string {
	sum, any := sha256.New(), false
	for _, b := range image.View().Binds {
		if !strings.HasPrefix(b.Target, ToolsDir+"/") {
			continue
		}
		any = true
		for _, pattern := range []string{"", "*", "*/*"} {
			// The pattern is well-formed unless the path itself contains special characters; in
			// that case fewer files match.
			names, _ := filepath.Glob(filepath.Join(b.Source, pattern))
			for _, name := range names {
				if info, err := os.Lstat(name); err == nil {
					fmt.Fprintf(sum, "%q %v %d\n", name, info.Mode(), info.ModTime().UnixNano())
				}
			}
		}
	}
	if !any {
		return ""
	}
	return "+" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// maskTools hides credentials in the directories of version managers, and files that the policy
// does not allow inside.
func (c *Masks) maskTools(trees []hosttools.Tree, match policy.Matcher) error {
	for i, tree := range trees {
		hide, err := tree.Credentials(func(name string, dir bool) bool {
			return match.Denied(name) || dir && match.Denied(name+anyFile)
		})
		if err != nil {
			return err
		}
		for _, rel := range hide {
			c.hide = append(c.hide, path.Join(ToolPath(i+1), filepath.ToSlash(rel)))
		}
	}
	if n := c.count(); n > maxMasked {
		return fault.Newf(fault.Exhausted, "policy_covers_too_much", "%d paths are hidden or protected, above the limit of %d, many of them in the directories of version managers", n, maxMasked).
			WithHint("name the version managers that are needed")
	}
	return nil
}

// guestTools returns the settings with which the guest makes the tools available to programs.
func guestTools(trees []hosttools.Tree) (t guest.Tools) {
	for i, tree := range trees {
		t.Links = append(t.Links, guest.Link{At: tree.Dir, To: ToolPath(i + 1)})
		t.Path = append(t.Path, tree.Bin...)
		for _, name := range slices.Sorted(maps.Keys(tree.Copy)) {
			t.Files = append(t.Files, guest.File{Path: name, Mode: 0o644, Data: tree.Copy[name]})
		}
	}
	return t
}
