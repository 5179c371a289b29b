// Package rootfs decides what of the host a sandbox sees: the workspace, mounts,
// programs and repositories that are shown, what a policy hides or makes read-only
// among them, and what the guest checks of that from inside before it is ready.
package rootfs

import (
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// workspaceCopy is the mode in which the sandbox sees a copy of the workspace.
const workspaceCopy = "copy"

// Bounds of what is covered. Each path costs the sandbox a mount, and each
// file of the workspace a look.
const (
	maxCovered = 512
	maxWalked  = 500_000 // as many as can be compared later
)

// Covered are paths inside that a policy keeps from programs: hide and absent keep
// what is there out of reach, under an empty file or under a name that is free, and
// readOnly keeps it as it is. What a policy only protects is not among them:
// programs change their own copy of it, and the export decides.
type Covered struct {
	hide, absent, readOnly []string
	// files are those that are shown, whose contents are looked at.
	files candidates
	// repos are the git repositories that track hidden files.
	repos []sandbox.Repo
	seen  int // files that were looked at
}

// count is the number of mounts that it takes.
func (c *Covered) count() int { return len(c.hide) + len(c.absent) + len(c.readOnly) }

// cover finds the files of a workspace that a policy hides or makes read-only. The
// workspace is the caller's own directory, in which no sandbox writes: it
// sees a copy-on-write view that is made after this look.
func cover(workspace string, b sandbox.Base, p *policy.Policy) (Covered, error) {
	var c Covered
	files := p.Files()
	if workspace != "" {
		w := c.walk(workspace, sandbox.WorkspaceDir, files)
		if err := w.below(workspace, sandbox.WorkspaceDir, w.look); err != nil {
			return Covered{}, err
		}
		if err := w.findTracked(files, b.Git); err != nil {
			return Covered{}, err
		}
		if !files.Writable {
			c.readOnly = append([]string{sandbox.WorkspaceDir}, c.readOnly...)
		}
	}
	if err := c.coverMounts(b, p); err != nil {
		return Covered{}, err
	}
	if n := c.count(); n > maxCovered {
		return Covered{}, fault.Newf(fault.Exhausted, "policy_covers_too_much",
			"the policy hides or makes read-only %d paths of the workspace and the mounts, and %d is the most", n, maxCovered).
			WithHint("hide their directory instead, or show a smaller one with --workspace")
	}
	return c, nil
}

// settle moves absent paths below a read-only directory to the hidden paths. A path
// can be absent only where the placeholder that stands for it can be removed, which a
// read-only directory does not allow.
func (c *Covered) settle() {
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

// continueMemory takes the path masks of saved memory where they keep the same paths from
// programs: its mounts cannot change.
func (c *Covered) continueMemory(saved sandbox.Base, match policy.Matcher) {
	b := sandbox.Base{Hide: c.hide, Absent: c.absent, ReadOnly: c.readOnly}.WithMasksOf(saved, match.Protected)
	c.hide, c.absent, c.readOnly = b.Hide, b.Absent, b.ReadOnly
}

// CoveredOf are the paths that every instance of a sandbox covers.
func CoveredOf(b sandbox.Base) Covered {
	return Covered{hide: b.Hide, absent: b.Absent, readOnly: b.ReadOnly, repos: b.Repos}
}

// CoveredBy are the paths that a specification covers.
func CoveredBy(spec engine.Spec) Covered {
	return Covered{hide: spec.Hide, absent: spec.Absent, readOnly: spec.ReadOnly}
}
