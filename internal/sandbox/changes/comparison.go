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

// sinceStart is what changes are compared with if nothing else is named.
const sinceStart = "start"

// comparison is the source of a sandbox's changes: its current files, their earlier
// state, and the policy that decides which of them may be exported.
type comparison struct {
	record sandbox.Row
	policy *policy.Policy
	box    changeset.Box
	base   changeset.Base
	dir    string
	since  string
	kept   bool
	// git is the repository that the workspace shares, or nil. Its files are among the
	// changes under the name of a repository of the workspace's own.
	git *comparison
	// mask is of what comes out of a sandbox that there is. In what was kept of
	// one, all is masked already; masked are the files in which something was.
	mask   *sandbox.Mask
	masked map[string]changeset.Conflict
	undo   []func() error
	// Of the turn to compare: when it ends, and how it is given back.
	until   time.Time
	done    func() error
	service *Service
}

// close lets go of everything, the last first.
func (o *comparison) close() error {
	var errs []error
	for _, f := range slices.Backward(o.undo) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// compare is called once and ends the comparison's turn, so that no other export waits
// while a person decides about what it found.
func (o *comparison) compare(ctx context.Context, lines, text bool) (_ *changeset.Set, err error) {
	defer func() { err = errors.Join(err, o.done()) }()
	ctx, cancel := inTime(ctx, o.until)
	defer cancel()
	opts := changeset.Options{Dir: o.dir, Lines: lines, Text: text}
	if o.showsHost() {
		// What is hidden was covered or removed before any program ran: the sandbox did
		// not remove it, and its text is none that comes out.
		match := o.policy.Files().Matcher()
		opts.Protected = func(name string) bool { return match.Protected(path.Join(o.dir, name)) }
		paths := match.ProtectedPaths()
		opts.Paths, opts.Start = paths, paths.Start(o.dir)
		hidden := sandbox.HiddenBelow(slices.Concat(o.record.Base.Hide, o.record.Base.Absent))
		opts.Ignore = func(name string) bool {
			// The file that names the shared repository is the host's own.
			own := o.git != nil && isGit(name)
			name = path.Join(o.dir, name)
			return own || match.Denied(name) || hidden(name) != ""
		}
	}
	set, err := changeset.Compare(ctx, o.box, o.base, opts)
	if errors.Is(err, errGuestSilent) {
		return nil, errGuestSilent
	}
	if err != nil && ctx.Err() != nil {
		return nil, sandbox.Canceled(context.Cause(ctx))
	}
	if err == nil {
		if o.dir == sandbox.WorkspaceDir {
			err = o.judgeGit(ctx, set)
		}
		if err == nil && o.git != nil {
			err = o.addRepository(ctx, set, lines, text)
		}
		o.remember(set.Changes)
		set.Digest = changeset.Digest(set.Changes)
	}
	return set, err
}

// showsHost reports whether the directory is the workspace, or holds or is in a mount.
func (o *comparison) showsHost() bool {
	return o.dir == sandbox.WorkspaceDir || slices.ContainsFunc(o.record.Base.Mounts, func(m sandbox.Mount) bool { return sandbox.Overlap(o.dir, m.Target) })
}

// remember marks what was masked when it was kept.
func (o *comparison) remember(list []changeset.Change) {
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

// shown is what a caller may see of changes.
func (o *comparison) shown(list []changeset.Change) []changeset.Change {
	out := make([]changeset.Change, len(list))
	for i, c := range list {
		out[i] = c.Shown(o.box.Hide)
	}
	return out
}
