package sandbox

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
)

// startingPoint finds what a reference means: a template, or a snapshot that
// takes its place. A template goes first where both have the name, which only an
// older version let happen.
func (s *Service) startingPoint(ctx context.Context, who Principal, ref Reference) (Template, error) {
	t, err := s.templates.Resolve(ctx, ref)
	if err == nil || !isUnknown(err) || ref.Namespace != "" || ref.Tag != DefaultTag {
		return t, err
	}
	n, missing := s.findSnapshot(ctx, who, ref.Name)
	if isUnknown(missing) {
		return Template{}, err // as if there were no snapshots
	}
	if missing != nil {
		return Template{}, missing
	}
	if n.FilesOnly {
		// It boots as any other sandbox of its template does.
		if t, err = s.templates.Resolve(ctx, Reference{Name: n.TemplateID, Tag: DefaultTag}); err != nil {
			return Template{}, fmt.Errorf("template of snapshot %s: %w", n.ID, err)
		}
		t.origin = &n
		return t, nil
	}
	if err := s.fits(ctx, n.TemplateID, n.Base, n.saved()); err != nil {
		return Template{}, err
	}
	b := n.Base
	return Template{
		ID: n.TemplateID, Name: n.Template, Root: b.Root, DefaultUser: b.DefaultUser, DefaultDir: b.DefaultDir,
		Env: b.Env, Revision: b.Revision, Tools: b.Tools, origin: &n, older: guestKnows - b.Knows,
	}, nil
}

// joins refuses what a saved machine cannot become, and returns the workspace
// that it has.
func (n *Stored) joins(asked Limits, workspace string) (string, error) {
	if n == nil {
		return workspace, nil
	}
	if workspace != "" && workspace != n.Workspace {
		return "", fault.New(fault.Invalid, "snapshot_workspace", "a snapshot goes on with the workspace that it was taken with").
			WithHint("leave the workspace out")
	}
	have := n.Limits
	taken := have.fields()
	for i, f := range asked.fields() {
		if *f.value != 0 && *f.value != *taken[i].value && !n.FilesOnly && fixed(f.limit) {
			return "", fault.Newf(fault.Invalid, "snapshot_limits", "the limit of %s is %s in the snapshot, and cannot be %s while its memory is kept",
				f.name, f.text(*taken[i].value), f.text(*f.value)).WithHint("leave this limit out")
		}
	}
	return n.Workspace, nil
}

// inherit gives a sandbox the snapshot's limits where none were asked for.
func (n *Stored) inherit(l *Limits, asked Limits) {
	if n == nil {
		return
	}
	have := n.Limits
	given, taken := asked.fields(), have.fields()
	for i, f := range l.fields() {
		if *given[i].value == 0 {
			*f.value = *taken[i].value
		}
	}
}

// fixed tells which limits are part of a machine's saved state.
func fixed(l engine.Limit) bool {
	return l == engine.LimitPIDs || l == engine.LimitDisk || l == engine.LimitInodes || l == engine.LimitShm
}

// origin is what a new sandbox's machine starts from: nothing, or a snapshot,
// whose machine must be the one that the request comes to.
func (s *Service) origin(r *Record, t Template, p *policy.Policy) (source, error) {
	n := t.origin
	if n == nil {
		return source{}, nil
	}
	if n.FilesOnly {
		from := n.from(guest.Copied)
		from.again = false
		return from, nil
	}
	taken, err := s.compile(n.Access)
	if err != nil {
		return source{}, err
	}
	// What a copy leaves out is not covered, so the same files must be denied.
	if why := r.Base.otherwise(n.Base); why != "" || n.Base.Copy != "" && !reflect.DeepEqual(p.Files(), taken.Files()) {
		if why == "" {
			why = "the workspace was copied under other rules"
		}
		return source{}, fault.Newf(fault.Invalid, "snapshot_policy",
			"the policy covers other files than the snapshot's machine does, which cannot change while its memory is kept: %s", why).
			WithHint("ask for the level and the file rules under which it was taken (level " + taken.Level() + "), or take a snapshot of files only")
	}
	r.Base.Copy = n.Base.Copy
	return n.from(guest.Copied), nil
}

// otherwise says how a machine differs from a saved one, or nothing.
func (b Base) otherwise(saved Base) string {
	for _, list := range []struct {
		what       string
		asked, has []string
	}{{"hides", b.Hide, saved.Hide}, {"leaves out", b.Absent, saved.Absent}, {"makes read-only", b.ReadOnly, saved.ReadOnly}} {
		for _, path := range list.asked {
			if !slices.Contains(list.has, path) {
				return "it " + list.what + " " + path + " besides"
			}
		}
		for _, path := range list.has {
			if !slices.Contains(list.asked, path) {
				return "it no longer " + list.what + " " + path
			}
		}
	}
	if b.NoRoot != saved.NoRoot {
		return "it decides otherwise whether anybody is root"
	}
	if (b.Copy != "") != (saved.Copy != "") {
		return "it decides otherwise whether the workspace is copied"
	}
	return ""
}
