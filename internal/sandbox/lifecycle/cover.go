package lifecycle

import (
	"context"
	"path"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// workspaceCopy is the mode in which a copy of the workspace is shown.
const workspaceCopy = "copy"

// Bounds of what is covered. Each path costs the sandbox a mount, and each
// file of the workspace a look.
const (
	maxCovered = 512
	maxWalked  = 500_000 // as many as can be compared later
)

// covered are paths inside that a policy keeps from programs: hide and absent keep
// what is there out of reach, under an empty file or under a name that is free, and
// readOnly keeps it as it is. What a policy only protects is not among them:
// programs change their own copy of it, and the export decides.
type covered struct {
	hide, absent, readOnly []string
	// files are those that are shown, whose contents are looked at.
	files candidates
	// repos are the git repositories that track hidden files.
	repos []sandbox.Repo
	seen  int // files that were looked at
}

// count is how many mounts it takes.
func (c *covered) count() int { return len(c.hide) + len(c.absent) + len(c.readOnly) }

// cover finds the files of a workspace that a policy hides or makes read-only. The
// workspace is the caller's own directory, in which no sandbox writes: it
// sees a copy-on-write view that is made after this look.
func cover(workspace string, b sandbox.Base, p *policy.Policy) (covered, error) {
	var c covered
	files := p.Files()
	if workspace != "" {
		w := c.walk(workspace, sandbox.WorkspaceDir, files)
		if err := w.below(workspace, sandbox.WorkspaceDir, w.look); err != nil {
			return covered{}, err
		}
		if err := w.findTracked(files, b.Git); err != nil {
			return covered{}, err
		}
		if !files.Writable {
			c.readOnly = append([]string{sandbox.WorkspaceDir}, c.readOnly...)
		}
	}
	if err := c.coverMounts(b, p); err != nil {
		return covered{}, err
	}
	if n := c.count(); n > maxCovered {
		return covered{}, fault.Newf(fault.Exhausted, "policy_covers_too_much",
			"the policy hides or makes read-only %d paths of the workspace and the mounts, and %d is the most", n, maxCovered).
			WithHint("hide their directory instead, or show a smaller one with --workspace")
	}
	return c, nil
}

// settle moves absent paths below a read-only directory to the hidden paths. A path
// can be absent only where the placeholder that stands for it can be removed, which a
// read-only directory does not allow.
func (c *covered) settle() {
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

// shown is the directory that a sandbox's workspace is made of: the caller's
// own, which its writes never reach, or a copy where the policy wants one. A
// sandbox's later machines show what the first did.
func (s *Service) shown(ctx context.Context, r sandbox.Row, p *policy.Policy, again bool) (string, error) {
	of := r.Base.Copy
	if of == "" {
		return r.Workspace, nil
	}
	if s.copies == nil {
		return "", fault.New(fault.Unsupported, "workspace_copy_unavailable", "the policy wants a copy of the workspace, and this service makes none")
	}
	if again {
		return s.copies.Find(of)
	}
	match, hidden := p.Files().Matcher(), sandbox.HiddenBelow(r.Base.Absent)
	return s.copies.Make(ctx, of, r.Workspace, r.Limits.DiskBytes, func(name string) bool {
		name = path.Join(sandbox.WorkspaceDir, name)
		return match.Denied(name) || hidden(name) != ""
	})
}

// dropCopy removes the copy of a sandbox's workspace, if there is one and
// nothing else refers to it.
func (s *Service) dropCopy(ctx context.Context, r sandbox.Row) error {
	of := r.Base.Copy
	if of == "" && r.Base.CheckRebuildable() != nil {
		of = r.ID // a row of an earlier version does not say
	}
	if s.copies == nil || of == "" {
		return nil
	}
	held, err := s.holdsCopy(ctx, of, r.ID)
	if err != nil || held {
		return err
	}
	return s.copies.Remove(of)
}

// holdsCopy reports whether anything but a sandbox needs the copy of a
// workspace. What is kept is asked last: it is kept while its sandbox still
// holds the copy.
func (s *Service) holdsCopy(ctx context.Context, of, but string) (bool, error) {
	held, err := s.store.Holds(ctx, of, but)
	if err != nil || held {
		return held, err
	}
	return s.kept != nil && s.kept.Needs(of), nil
}

// dropCopies removes copies that nothing refers to.
func (s *Service) dropCopies(ctx context.Context) error {
	if s.copies == nil {
		return nil
	}
	return s.sweep(s.copies, func(id string) (bool, error) {
		held, err := s.holdsCopy(ctx, id, "")
		if err != nil || held {
			return held, err
		}
		r, err := s.store.Get(ctx, id)
		return err == nil && r.State != sandbox.Stopped && r.Base.CheckRebuildable() != nil, ignoreUnknown(err)
	})
}

// covered are the paths that every machine of the sandbox covers.
func coveredOf(b sandbox.Base) covered {
	return covered{hide: b.Hide, absent: b.Absent, readOnly: b.ReadOnly, repos: b.Repos}
}
