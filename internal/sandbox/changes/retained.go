package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/retained"
)

// retainedBounds limit the retained changes of one run. For larger changes the sandbox itself has
// to be retained.
var retainedBounds = changeset.Bounds{FileBytes: 256 << 20, Bytes: 1 << 30}

// KeepChanges retains the changes below the workspace beyond the sandbox's end.
func (s *Service) KeepChanges(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.KeptChanges, error) {
	ctx, action := s.audit.Begin(ctx, caller, "changes.keep", ref)
	out, err := s.keepChanges(ctx, caller, ref)
	if err == nil && out.Files == 0 {
		return out, nil // nothing was done
	}
	return out, action.Commit(ctx, err)
}

func (s *Service) keepChanges(ctx context.Context, caller sandbox.Principal, ref string) (_ sandbox.KeptChanges, err error) {
	if err := s.checkMayRetain(caller); err != nil {
		return sandbox.KeptChanges{}, err
	}
	o, err := s.open(ctx, caller, ref, sandbox.ChangesRequest{})
	if err != nil {
		return sandbox.KeptChanges{}, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	r := o.record
	if o.isRetained || r.Workspace == "" {
		return sandbox.KeptChanges{}, fault.New(fault.Invalid, "workspace_missing", "the sandbox has no host directory to which its changes could be applied")
	}
	if s.source.Unchanged(ctx, r) {
		return sandbox.KeptChanges{ID: r.ID, Workspace: r.Workspace}, nil
	}
	set, err := o.compare(ctx, true, false)
	if err != nil || len(set.Changes) == 0 {
		return sandbox.KeptChanges{ID: r.ID, Workspace: r.Workspace}, err
	}
	access, err := json.Marshal(r.Access)
	if err != nil {
		return sandbox.KeptChanges{}, err
	}
	var shown json.RawMessage
	if r.Base.Git != nil {
		if shown, err = json.Marshal(sandbox.Base{Mounts: r.Base.Mounts, Git: r.Base.Git}); err != nil {
			return sandbox.KeptChanges{}, err
		}
	}
	draft, err := s.retained.Begin(r.ID)
	if err != nil {
		return sandbox.KeptChanges{}, err
	}
	// A change that may not be exported is retained as a line without content, and a file whose
	// name contains a secret not at all. Everything else is redacted now, because the values may be
	// gone later. Git references are checked again when they are exported.
	list, refused := changeset.Select(withoutGitFlags(set.Changes), func(changeset.Change) bool { return true })
	refused = slices.DeleteFunc(refused, func(c changeset.Change) bool { return c.Has(changeset.SecretName) })
	if list, err = changeset.Stage(ctx, o.source, o.dir, list, draft.Files, retainedBounds); err != nil {
		return sandbox.KeptChanges{}, errors.Join(err, draft.Abort())
	}
	files := len(list) + len(refused)
	if left := len(set.Changes) - files; left > 0 {
		s.log.Warn("not retained: files with a secret in their name", "sandbox", r.ID, "files", left)
	}
	if files == 0 {
		return sandbox.KeptChanges{ID: r.ID, Workspace: r.Workspace}, draft.Abort()
	}
	m := retained.Meta{
		Owner: r.Owner, Workspace: r.Workspace, Copy: r.Base.Copy, Shown: shown, Dir: o.dir, TakenAt: set.TakenAt, ExpiresAt: set.TakenAt.Add(retained.Life),
		Hidden: slices.Concat(r.Base.Hide, r.Base.Absent),
		Files:  files, Masked: maskedOf(list), Added: set.Added, Removed: set.Removed, Access: access,
		Made: retained.Made{
			Template: r.Template, TemplateID: r.TemplateID, Revision: r.Base.Revision, Engine: r.Engine, Boundary: string(r.Boundary),
			Origin: r.Origin, Parent: r.Parent, StartedAt: r.StartedAt,
		},
	}
	if err := draft.Commit(m, append(list, refused...)); err != nil {
		return sandbox.KeptChanges{}, err
	}
	m.ID = r.ID
	return keptChanges(m), s.Sweep()
}

// maskedOf returns the files in which text was redacted. Files that were too large to be inspected
// are included, because their export could overwrite a file with the same secret on the host.
func maskedOf(list []changeset.Change) []retained.Masked {
	var out []retained.Masked
	for _, c := range list {
		if !c.Has(changeset.Masked) {
			continue
		}
		m := retained.Masked{Path: []byte(c.Path), Conflict: c.Conflict}
		if c.Omitted && c.Outside != nil {
			m.Conflict = changeset.SecretOutside
		}
		if m.Conflict != changeset.SecretOutside {
			m.Conflict = "" // a comparison finds the others again
		}
		out = append(out, m)
	}
	return out
}

// keptChanges returns the description of retained changes for callers.
func keptChanges(m retained.Meta) sandbox.KeptChanges {
	return sandbox.KeptChanges{
		ID: m.ID, Workspace: m.Workspace, TakenAt: m.TakenAt, ExpiresAt: m.ExpiresAt, Files: m.Files, Added: m.Added, Removed: m.Removed,
	}
}

// checkMayRetain refuses callers that may not retain changes. Retained changes are meant for the
// host's directories, and use the host's disk.
func (s *Service) checkMayRetain(caller sandbox.Principal) error {
	if err := caller.Check(); err != nil {
		return err
	}
	if !caller.Local {
		return fault.New(fault.Denied, "changes_not_local", "only callers on the server's own machine retain changes of ended sandboxes")
	}
	if s.retained == nil {
		return fault.New(fault.Unsupported, "changes_unavailable", "this server does not retain changes")
	}
	return nil
}

// ListChanges returns the retained changes, newest first.
func (s *Service) ListChanges(_ context.Context, caller sandbox.Principal) ([]sandbox.KeptChanges, error) {
	if err := s.checkMayRetain(caller); err != nil {
		return nil, err
	}
	list, err := s.retained.List()
	if err != nil {
		return nil, err
	}
	out := make([]sandbox.KeptChanges, len(list))
	for i, m := range list {
		out[i] = keptChanges(m)
	}
	return out, nil
}

// DiscardChanges removes the retained changes of a sandbox.
func (s *Service) DiscardChanges(ctx context.Context, caller sandbox.Principal, id string) error {
	ctx, action := s.audit.Begin(ctx, caller, "changes.discard", id)
	return action.Finish(ctx, s.discardChanges(ctx, caller, id))
}

// discardChanges removes the retained changes of a run, and also its recordings.
func (s *Service) discardChanges(ctx context.Context, caller sandbox.Principal, id string) error {
	if err := s.checkMayRetain(caller); err != nil {
		return err
	}
	if _, err := s.retained.Meta(id); err != nil {
		return err
	}
	return errors.Join(s.dropRetained(id), s.source.DropRecording(ctx, id))
}

// openRetained opens the retained changes of a sandbox that does not exist any more. It reports
// whether there are any.
func (s *Service) openRetained(caller sandbox.Principal, id string, o *comparison) (bool, error) {
	m, err := s.retained.Meta(id)
	if fault.KindOf(err) == fault.NotFound || err == nil && !caller.Local {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if o.dir != m.Dir || o.since != sinceStart {
		return true, fault.Newf(fault.Conflict, "changes_kept", "sandbox %s has ended; only its changes in %s since its start were retained", id, m.Dir)
	}
	o.isRetained, o.masked = true, make(map[string]changeset.Conflict, len(m.Masked))
	for _, f := range m.Masked {
		o.masked[string(f.Path)] = f.Conflict
	}
	made := m.Made
	o.record = sandbox.Row{Base: sandbox.Base{Copy: m.Copy, Revision: made.Revision, Absent: m.Hidden}, Sandbox: sandbox.Sandbox{
		ID: id, Owner: m.Owner, Workspace: m.Workspace, State: sandbox.Stopped, StartedAt: made.StartedAt, Template: made.Template,
		TemplateID: made.TemplateID, Engine: made.Engine, Boundary: engine.Boundary(made.Boundary), Origin: made.Origin, Parent: made.Parent,
	}}
	if err := json.Unmarshal(m.Access, &o.record.Access); err != nil {
		return true, fmt.Errorf("retained changes of %s: %w", id, err)
	}
	if len(m.Shown) > 0 {
		var shown sandbox.Base
		if err := json.Unmarshal(m.Shown, &shown); err != nil {
			return true, fmt.Errorf("retained changes of %s: %w", id, err)
		}
		o.record.Base.Mounts, o.record.Base.Git = shown.Mounts, shown.Git
	}
	if o.policy, err = s.source.Policy(o.record.Access); err != nil {
		return true, err
	}
	if err := s.openStart(context.Background(), o); err != nil {
		return true, err
	}
	if o.git == nil {
		o.source, err = s.retained.Files(id, o.base.Start)
		return true, err
	}
	if o.source, err = s.retained.Part(id, o.base.Start, notGit); err != nil {
		return true, err
	}
	o.git.source, err = s.retained.Part(id, o.git.base.Start, ofGit)
	return true, err
}

// dropRetained removes the retained changes of a sandbox, and the initial state with which they
// were compared, unless the sandbox itself still needs it.
func (s *Service) dropRetained(id string) error {
	copied := ""
	if m, err := s.retained.Meta(id); err == nil {
		copied = m.Copy
	}
	if err := s.retained.Remove(id); err != nil {
		return err
	}
	return s.source.Forget(id, copied)
}

// ForgetAll removes all retained changes.
func (s *Service) ForgetAll() error {
	if s.retained == nil {
		return nil
	}
	list, err := s.retained.List()
	errs := []error{err}
	for _, m := range list {
		errs = append(errs, s.dropRetained(m.ID))
	}
	return errors.Join(errs...)
}

// Sweep removes retained changes that have expired.
func (s *Service) Sweep() error {
	if s.retained == nil {
		return nil
	}
	expired, err := s.retained.Sweep()
	errs := []error{err}
	for _, id := range expired {
		errs = append(errs, s.dropRetained(id))
	}
	return errors.Join(errs...)
}
