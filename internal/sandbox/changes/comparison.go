package changes

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

// sinceStart is the default state that changes are compared with.
const sinceStart = "start"

// comparison is the source of a sandbox's changes: its current files, their earlier
// state, and the policy that decides which of them may be exported.
type comparison struct {
	record     sandbox.Row
	policy     *policy.Policy
	source     changeset.Source
	base       changeset.Base
	dir        string
	since      string
	isRetained bool
	// git is the comparison of the repository that the workspace shares, or nil. Its files appear
	// among the changes as if the repository were the workspace's own .git.
	git *comparison
	// redactor redacts the exported data of an existing sandbox. Retained changes are already
	// redacted; masked lists the affected files.
	redactor *sandbox.Redactor
	masked   map[string]changeset.Conflict
	undo     []func() error
	// deadline is the time limit of this comparison, and releaseSlot releases its place among the
	// running comparisons.
	deadline    time.Time
	releaseSlot func() error
	service     *Service
}

// close closes all opened resources in reverse order.
func (o *comparison) close() error {
	var errs []error
	for _, f := range slices.Backward(o.undo) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// compare compares the current files with the earlier state. It is called once. It releases the
// comparison's place, so that other exports do not wait while a person decides about this one.
func (o *comparison) compare(ctx context.Context, lines, text bool) (_ *changeset.Set, err error) {
	defer func() { err = errors.Join(err, o.releaseSlot()) }()
	ctx, cancel := withTimeLimit(ctx, o.deadline)
	defer cancel()
	opts := changeset.Options{Dir: o.dir, Lines: lines, Text: text}
	if o.showsHost() {
		// Hidden files were masked or removed before any program ran. So the sandbox did not remove
		// them, and their text must not leave it.
		match := o.policy.Files().Matcher()
		opts.Protected = func(name string) bool { return match.Protected(path.Join(o.dir, name)) }
		paths := match.ProtectedPaths()
		opts.Paths, opts.Start = paths, paths.Start(o.dir)
		hidden := sandbox.HiddenBelow(slices.Concat(o.record.Base.Hide, o.record.Base.Absent))
		opts.Ignore = func(name string) bool {
			// The file that names the shared repository belongs to the host.
			isPointer := o.git != nil && isGit(name)
			name = path.Join(o.dir, name)
			return isPointer || match.Denied(name) || hidden(name) != ""
		}
	}
	set, err := changeset.Compare(ctx, o.source, o.base, opts)
	if errors.Is(err, errGuestSilent) {
		return nil, errGuestSilent
	}
	if err != nil && ctx.Err() != nil {
		return nil, sandbox.Canceled(context.Cause(ctx))
	}
	if err == nil {
		if o.dir == sandbox.WorkspaceDir {
			err = o.inspectGit(ctx, set)
		}
		if err == nil && o.git != nil {
			err = o.addRepository(ctx, set, lines, text)
		}
		o.markMasked(set.Changes)
		set.Digest = changeset.Digest(set.Changes)
	}
	return set, err
}

// showsHost reports whether the directory is the workspace, or contains or is within a mount.
func (o *comparison) showsHost() bool {
	return o.dir == sandbox.WorkspaceDir || slices.ContainsFunc(o.record.Base.Mounts, func(m sandbox.Mount) bool { return sandbox.Overlap(o.dir, m.Target) })
}

// markMasked marks the files whose content was redacted when they were retained.
func (o *comparison) markMasked(list []changeset.Change) {
	for i := range list {
		c := &list[i]
		conflict, masked := o.masked[c.Path]
		if !masked || c.New == nil || c.New.Type != changeset.Regular {
			continue
		}
		c.Flags = append(c.Flags, changeset.Masked)
		if c.Conflict == "" && c.Outside != nil {
			c.Conflict = conflict
		}
	}
}

// shown returns the changes in the form that callers may see.
func (o *comparison) shown(list []changeset.Change) []changeset.Change {
	out := make([]changeset.Change, len(list))
	for i, c := range list {
		out[i] = c.Shown(o.source.Redactor)
	}
	return out
}
