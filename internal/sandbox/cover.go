package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/causeway/policy"
	"github.com/crannog/crannog/internal/fault"
)

// workspaceDir is where a workspace is shown inside.
const workspaceDir = "/workspace"

// workspaceCopy is the mode in which a copy of the workspace is shown.
const workspaceCopy = "copy"

// Bounds of what is covered. Each path costs the sandbox a mount, and each
// file of the workspace a look.
const (
	maxCovered = 512
	maxWalked  = 1_000_000
)

// covered are paths inside that a policy hides or protects.
type covered struct{ hide, readOnly []string }

// cover finds the files of a workspace that a policy hides or protects. The
// workspace is the caller's own directory, in which no sandbox writes: it
// sees a copy-on-write view that is made after this look.
func cover(workspace string, p *policy.Policy) (covered, error) {
	var c covered
	files, match := p.Files(), p.Files().Matcher()
	copied := files.Workspace == workspaceCopy
	if workspace == "" {
		return c, nil
	}
	if !files.Writable {
		c.readOnly = append(c.readOnly, workspaceDir)
	}
	seen := 0
	err := filepath.WalkDir(workspace, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
			// Gone meanwhile, or not this user's to read: then the sandbox, whose
			// files are served as this user, cannot read it either.
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case err != nil:
			return err
		case name == workspace:
			return nil
		}
		if seen++; seen > maxWalked {
			return fault.Newf(fault.Exhausted, "workspace_too_large", "the workspace has more than %d files to check against the policy", maxWalked).
				WithHint("show a smaller directory with --workspace")
		}
		rel, err := filepath.Rel(workspace, name)
		if err != nil {
			return err
		}
		return c.look(workspace, path.Join(workspaceDir, filepath.ToSlash(rel)), name, d, match, copied)
	})
	if err != nil {
		return covered{}, err
	}
	if n := len(c.hide) + len(c.readOnly); n > maxCovered {
		return covered{}, fault.Newf(fault.Exhausted, "policy_covers_too_much",
			"the policy hides or protects %d paths of the workspace, and %d is the most", n, maxCovered).
			WithHint("hide their directory instead, or show a smaller one with --workspace")
	}
	return c, nil
}

// look decides about one file. What is covered as a whole is not entered.
func (c *covered) look(workspace, inside, name string, d fs.DirEntry, files policy.Matcher, copied bool) error {
	var skip error
	// A pattern of everything below a directory means the directory too, or
	// new files could be made in it.
	below := inside
	if d.IsDir() {
		below, skip = inside+"/x", fs.SkipDir
	}
	link := d.Type()&fs.ModeSymlink != 0
	switch {
	case files.Denied(inside) || files.Denied(below):
		if copied {
			return skip // it does not come in
		}
		if link {
			return c.hideTarget(workspace, name)
		}
		c.hide = append(c.hide, inside)
		return skip
	case files.Protected(inside) || files.Protected(below):
		if link {
			return fault.Newf(fault.Unsupported, "policy_protects_link", "the policy protects %s, which is a symbolic link: it could be replaced inside", inside).
				WithHint("protect what it points to, or leave it out of the workspace")
		}
		c.readOnly = append(c.readOnly, inside)
		return skip
	}
	return nil
}

// hideTarget hides what a hidden link shows, as far as that is inside.
func (c *covered) hideTarget(workspace, name string) error {
	target, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil // it points to nothing, here as inside
	}
	rel, err := filepath.Rel(workspace, target)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return nil // nothing outside the workspace is inside
	}
	if _, err := os.Lstat(target); err != nil {
		return nil
	}
	c.hide = append(c.hide, path.Join(workspaceDir, filepath.ToSlash(rel)))
	return nil
}

// shown is the directory that a sandbox's workspace is made of: the caller's
// own, which its writes never reach, or a copy where the policy wants one. A
// sandbox's later machines show what the first did.
func (s *Service) shown(ctx context.Context, r Record, p *policy.Policy, again bool) (string, error) {
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
	match := p.Files().Matcher()
	return s.copies.Make(ctx, of, r.Workspace, r.Limits.DiskBytes, func(name string) bool {
		return match.Denied(path.Join(workspaceDir, name))
	})
}

// dropCopy removes the copy of a sandbox's workspace, if there is one and
// nothing else refers to it.
func (s *Service) dropCopy(ctx context.Context, r Record) error {
	of := r.Base.Copy
	if of == "" && r.Base.known() != nil {
		of = r.ID // a row of an earlier version does not say
	}
	if s.copies == nil || of == "" || s.kept != nil && s.kept.Has(of) {
		return nil
	}
	held, err := s.store.Holds(ctx, of, r.ID)
	if err != nil || held {
		return err
	}
	return s.copies.Remove(of)
}

// dropCopies removes copies that nothing refers to.
func (s *Service) dropCopies(ctx context.Context) error {
	if s.copies == nil {
		return nil
	}
	return s.sweep(s.copies, func(id string) (bool, error) {
		if s.kept != nil && s.kept.Has(id) {
			return true, nil
		}
		held, err := s.store.Holds(ctx, id, "")
		if err != nil || held {
			return held, err
		}
		r, err := s.store.Get(ctx, id)
		return err == nil && r.State != Stopped && r.Base.known() != nil, ignoreUnknown(err)
	})
}
