// Package rootfs owns the selection of host files that a sandbox sees: the workspace, mounts,
// programs and repositories. It determines which of their files a policy hides or makes read-only,
// and which of these rules the guest checks from inside before it is ready.
package rootfs

import (
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// workspaceCopy is the mode in which the sandbox sees a copy of the workspace.
const workspaceCopy = "copy"

// Limits of path masks. Each masked path costs the sandbox a mount, and each file of the workspace
// has to be checked.
const (
	maxMasked       = 512
	maxCheckedFiles = 500_000 // a comparison has the same limit
)

// Masks are the path masks of a sandbox. An empty file is mounted over the paths in hide, the paths
// in absent are missing, and those in readOnly cannot be changed. Paths that a policy only protects
// are not masked: programs change their own copy, and the export rules decide.
type Masks struct {
	hide, absent, readOnly []string
	// files are visible files whose contents are searched for keys.
	files candidates
	// repos are the git repositories that track hidden files.
	repos []sandbox.Repo
	seen  int // number of files that were checked
}

// count returns the number of mounts that the masks need.
func (c *Masks) count() int { return len(c.hide) + len(c.absent) + len(c.readOnly) }

// pathMasks finds the files of a workspace that a policy hides or makes read-only. The workspace is
// the caller's own directory, into which no sandbox writes: a sandbox sees a copy-on-write view
// that is made after this check.
func pathMasks(workspace string, b sandbox.Base, p *policy.Policy) (Masks, error) {
	var c Masks
	files := p.Files()
	if workspace != "" {
		w := c.walk(workspace, sandbox.WorkspaceDir, files)
		if err := w.walkDir(workspace, sandbox.WorkspaceDir, w.check); err != nil {
			return Masks{}, err
		}
		if err := w.findTracked(files, b.Git); err != nil {
			return Masks{}, err
		}
		if !files.Writable {
			c.readOnly = append([]string{sandbox.WorkspaceDir}, c.readOnly...)
		}
	}
	if err := c.maskMounts(b, p); err != nil {
		return Masks{}, err
	}
	if n := c.count(); n > maxMasked {
		return Masks{}, fault.Newf(fault.Exhausted, "policy_covers_too_much",
			"the policy hides or makes read-only %d paths of the workspace and the mounts, above the limit of %d", n, maxMasked).
			WithHint("hide their directory instead, or use a smaller one as --workspace")
	}
	return c, nil
}

// hideBelowReadOnly moves absent paths below a read-only directory to the hidden paths. An absent
// path needs a placeholder that is then removed, which a read-only directory does not allow.
func (c *Masks) hideBelowReadOnly() {
	fixed := sandbox.HiddenBelow(c.readOnly)
	var absent []string
	for _, name := range c.absent {
		if fixed(name) != "" {
			c.hide = append(c.hide, name)
		} else {
			absent = append(absent, name)
		}
	}
	c.absent = absent
}

// continueMemory uses the path masks of saved memory if they hide and protect the same paths,
// because the mounts of saved memory cannot change.
func (c *Masks) continueMemory(saved sandbox.Base, match policy.Matcher) {
	b := sandbox.Base{Hide: c.hide, Absent: c.absent, ReadOnly: c.readOnly}.WithMasksOf(saved, match.Protected)
	c.hide, c.absent, c.readOnly = b.Hide, b.Absent, b.ReadOnly
}

// MasksOfBase returns the paths that are masked in every instance of a sandbox.
func MasksOfBase(b sandbox.Base) Masks {
	return Masks{hide: b.Hide, absent: b.Absent, readOnly: b.ReadOnly, repos: b.Repos}
}

// MasksOf returns the path masks of a specification.
func MasksOf(spec engine.Spec) Masks {
	return Masks{hide: spec.Hide, absent: spec.Absent, readOnly: spec.ReadOnly}
}
