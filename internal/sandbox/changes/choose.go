package changes

import (
	"context"
	"errors"
	"slices"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

// Limits of one answer. The digest covers all changes.
const (
	maxShown     = 20_000
	maxShownText = 32 << 20
)

// Changes compares the files of a sandbox with an earlier state.
func (s *Service) Changes(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ChangesRequest) (_ sandbox.ChangeSet, err error) {
	isChosen, err := policy.Chosen(req.Paths)
	if err != nil {
		return sandbox.ChangeSet{}, err
	}
	o, err := s.open(ctx, caller, ref, req)
	if err != nil {
		return sandbox.ChangeSet{}, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	set, err := o.compare(ctx, true, req.Text)
	if err != nil {
		return sandbox.ChangeSet{}, err
	}
	out := sandbox.ChangeSet{Sandbox: o.record.ID, Since: o.since, Dir: o.dir, TakenAt: set.TakenAt, Retained: o.isRetained}
	list := slices.DeleteFunc(set.Changes, func(c changeset.Change) bool { return !isChosen(c.Path) })
	out.Digest, out.Files = changeset.Digest(list), len(list)
	textLeft := maxShownText
	for i := range list {
		c := &list[i]
		out.Added += c.Added
		out.Removed += c.Removed
		if !o.mayShowText(c.Path) {
			c.Text = ""
		}
		if textLeft -= len(c.Text); textLeft < 0 {
			c.Text, out.Truncated = "", true
		}
	}
	all := list
	if list = o.shown(list); len(list) > maxShown {
		list, out.Truncated = list[:maxShown], true
	}
	if slices.ContainsFunc(list, func(c changeset.Change) bool { return c.Text != "" }) {
		// Showing the content of files is an export too.
		if err := s.audit.Note(s.exportDraft(ctx, caller, o, choiceOf(o, all, out.Digest), toDiff, "")); err != nil {
			return sandbox.ChangeSet{}, err
		}
	}
	out.Changes = list
	return out, nil
}

// mayShowText reports whether the text of a file may appear in a diff. A file that the policy
// excludes from exports must not leave as a diff either. A file whose export requires approval may
// appear, because the approver has to see it.
func (o *comparison) mayShowText(path string) bool {
	return o.policy.Export(false).Effect != egress.Deny && o.mayExport(path)
}

// mayExport reports whether a path may be exported at all. The paths in a policy are relative to
// the workspace. A file of the same name elsewhere does not match; otherwise a program inside could
// place a file there to have it exported.
func (o *comparison) mayExport(path string) bool {
	if o.dir != sandbox.WorkspaceDir {
		return len(o.policy.Document().Filesystem.Export.Only) == 0
	}
	return o.policy.MayExport(path)
}

// choice is the subset of the changes that a caller has requested and may export.
type choice struct {
	chosen, left []changeset.Change
	digest       string
	removals     int
	decision     egress.Decision
}

// choose selects the changes that may be exported: first by the rules that always hold, then by the
// policy, then by the request.
func (o *comparison) choose(all []changeset.Change, paths []string, protected, overwrite bool) (choice, error) {
	isChosen, err := policy.Chosen(paths)
	if err != nil {
		return choice{}, err
	}
	included := func(c changeset.Change) bool { return isChosen(c.Path) && o.mayExport(c.Path) }
	chosen, left := changeset.Select(all, func(c changeset.Change) bool {
		flagged := c.Has(changeset.Protected) || c.Has(changeset.RunsByItself)
		return included(c) && (protected || !flagged) && (overwrite || c.Conflict == "")
	})
	for _, c := range chosen {
		// A directory that is included because of its files counts as requested, and so do its
		// flags.
		if !protected && (c.Has(changeset.Protected) || c.Has(changeset.RunsByItself)) || c.Refused() {
			return choice{}, fault.Newf(fault.Denied, "export_flagged", "%.200q is protected, and files below it cannot be exported without it", c.Path)
		}
	}
	out := choiceOf(o, chosen, changeset.Digest(chosen))
	out.left = slices.DeleteFunc(left, func(c changeset.Change) bool { return !included(c) })
	return out, nil
}

// choiceOf returns a choice of exactly these changes.
func choiceOf(o *comparison, chosen []changeset.Change, digest string) choice {
	out := choice{chosen: chosen, digest: digest}
	for _, c := range chosen {
		if c.New == nil {
			out.removals++
		}
	}
	out.decision = o.policy.Export(out.removals > 0)
	return out
}

// decideExport applies the policy to a choice. It returns the approval that was used, or the reason
// why nothing is exported. The caller writes the audit entry before the export.
func (s *Service) decideExport(ctx context.Context, o *comparison, c choice, to, wanted string) (string, error) {
	if wanted != "" && wanted != c.digest {
		return "", fault.New(fault.Conflict, "changes_moved", "the changes are not the same as those that were shown").
			WithHint("show them again: crannog diff")
	}
	switch c.decision.Effect {
	case egress.Allow:
		return "", nil
	case egress.Ask:
		return s.approveExport(ctx, o, c, to)
	case egress.Deny:
		return "", exportDenied(c.decision)
	default:
		return "", exportDenied(c.decision)
	}
}

func exportDenied(d egress.Decision) error {
	return fault.Newf(fault.Denied, "export_denied", "the policy denies the export of these changes: %s of the %s layer", d.Rule, d.Layer)
}
