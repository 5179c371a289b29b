package lifecycle

import (
	"context"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// withDefaults returns a request with the settings of its template. The template of another key
// must not set where secrets are sent, because its policy could guess their names.
func withDefaults(caller sandbox.Principal, req sandbox.CreateRequest, t sandbox.Template) (_ sandbox.CreateRequest, err error) {
	if t.Owner != "" && t.Owner != caller.KeyID && len(bindingsOf(accessOf(t))) > 0 {
		return req, fault.New(fault.Denied, "template_secrets", "the template belongs to an API key, and its policy would bind your secrets").
			WithHint("create your own template from the same image")
	}
	asked, defaults := req.Limits.Fields(), t.Limits.Fields()
	for i, f := range asked {
		if *f.Value == 0 {
			*f.Value = *defaults[i].Value
		}
	}
	switch {
	case t.Access != nil:
		req.Access, err = req.Access.OfTemplate(*t.Access)
	case t.Origin != nil:
		req.Access.Within = t.Origin.Access.Within // a snapshot keeps those of its template
	}
	return req, err
}

// withMemory starts a sandbox from its template's memory, in which the template's program is ready,
// if the request needs the same instance. Otherwise the sandbox boots and starts the program.
func (pl *planner) withMemory(ctx context.Context, req sandbox.CreateRequest, t sandbox.Template) sandbox.Template {
	if t.Memory == "" || req.Boots || req.Containers || len(req.Mounts)+len(req.Volumes) > 0 || len(req.Programs) > 0 || len(req.Tools) > 0 {
		return t
	}
	n, err := pl.snapshots.rows.GetSnapshot(ctx, t.Memory)
	if err != nil || n.Sum == "" || req.Engine != "" && req.Engine != n.Engine {
		return t
	}
	if _, err := (&n).WorkspaceFor(req.Limits, req.Workspace); err != nil {
		return t
	}
	from, err := pl.fromMemory(ctx, n)
	if err != nil {
		return t // such as one that an earlier version of the program saved
	}
	from.ID, from.Name, from.Owner, from.Limits, from.Access, from.Memory = t.ID, t.Name, t.Owner, t.Limits, t.Access, t.Memory
	return from
}

// addsRepository reports whether a workspace needs other files of the host, or a note to people,
// that a sandbox from the memory of its template does not get.
func addsRepository(t sandbox.Template, workspace string, match policy.Matcher) bool {
	if t.OwnMemory() == "" || workspace == "" {
		return false
	}
	var added sandbox.Base
	rootfs.AddRepository(&added, workspace, t.Image, match)
	return added.Git != nil || len(added.Mounts)+len(added.Links)+len(added.Notes) > 0
}

// mayTakeWorkspace reports whether the memory of a sandbox can be used with workspaces. If programs
// run as a user of the image, /workspace belongs to that user without a workspace, and to the
// account "user" with one.
func mayTakeWorkspace(t sandbox.Template, info engine.Info) bool {
	name, _, _ := strings.Cut(t.DefaultUser, ":")
	return info.TakesWorkspace && slices.Contains([]string{"", "root", "0", "user"}, name)
}

// accessOf returns the access that a template sets. Its author was allowed to use the references in
// it.
func accessOf(t sandbox.Template) sandbox.Access {
	if t.Access == nil {
		return sandbox.Access{}
	}
	return *t.Access
}

// exceedsTemplate reports whether an error only means that a request does not fit the memory of its
// template.
func exceedsTemplate(t sandbox.Template, err error) bool {
	return t.OwnMemory() != "" && slices.Contains([]string{"snapshot_policy", "snapshot_limits"}, fault.CodeOf(err))
}
