package lifecycle

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/changes"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// Changes returns the service that compares and exports the changes of this Service's sandboxes.
func (s *Service) Changes() *changes.Service { return s.data.changes }

// changesSource gives package changes access to the sandboxes of a Service.
type changesSource struct{ s *Service }

// Resolve implements changes.Source.
func (c changesSource) Resolve(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Row, error) {
	return c.s.resolve(ctx, caller, ref)
}

// Snapshot implements changes.Source.
func (c changesSource) Snapshot(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Stored, error) {
	return c.s.planner.snapshots.find(ctx, caller, ref)
}

// Policy implements changes.Source.
func (c changesSource) Policy(a sandbox.Access) (*policy.Policy, error) { return c.s.access.Compile(a) }

// HostBinds implements changes.Source.
func (c changesSource) HostBinds(ctx context.Context, r sandbox.Row, p *policy.Policy) ([]engine.Bind, error) {
	return rootfs.Mounts(ctx, c.s.data.workspaces.Copies(), r, p, r.Base.HostBinds(), true)
}

// Open implements changes.Source.
func (c changesSource) Open(ctx context.Context, r sandbox.Row) (changes.Opened, error) {
	switch r.State {
	case sandbox.Running:
		mask, err := c.s.Redactor(ctx, r.ID)
		return changes.Opened{Row: r, Mask: mask}, err
	case sandbox.Paused:
		mask, err := c.s.access.RedactorOf(ctx, r)
		if err != nil {
			return changes.Opened{}, c.s.access.Unavailable(r.ID, err)
		}
		copied, drop, err := c.s.bootReader(ctx, r, r.Base, r.Limits, r.Workspace, r.Saved)
		return changes.Opened{Row: copied, Mask: mask, Close: drop}, err
	case sandbox.Creating, sandbox.Stopping, sandbox.Pausing, sandbox.Resuming, sandbox.Waiting, sandbox.Stopped:
	}
	return changes.Opened{}, stateConflict(r)
}

// OpenSnapshot implements changes.Source.
func (c changesSource) OpenSnapshot(ctx context.Context, r sandbox.Row, n sandbox.Stored) (changes.Opened, error) {
	copied, drop, err := c.s.bootReader(ctx, r, n.Base, n.Limits, n.Workspace, n.SavedState())
	return changes.Opened{Row: copied, Close: drop}, err
}

// Guest implements changes.Source.
func (c changesSource) Guest(ctx context.Context, r sandbox.Row, method, path string, body io.Reader) (*http.Response, error) {
	return c.s.engines.askGuest(ctx, r, method, path, body)
}

// RetainedRedactor implements changes.Source.
func (c changesSource) RetainedRedactor(ctx context.Context, r sandbox.Row) (*sandbox.Redactor, error) {
	return c.s.access.RedactorOf(ctx, r)
}

// Unchanged implements changes.Source.
func (c changesSource) Unchanged(ctx context.Context, r sandbox.Row) bool {
	return c.s.intake.Unchanged(ctx, r)
}

// Log implements changes.Source.
func (c changesSource) Log(ctx context.Context, id, message string) {
	c.s.note(ctx, id, "info", message, nil)
}

// Forget implements changes.Source.
func (c changesSource) Forget(id, copied string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if r, err := c.s.store.Get(ctx, id); err == nil && r.State != sandbox.Stopped {
		return nil // the sandbox still needs them
	}
	return errors.Join(c.s.data.workspaces.Forget(id), c.s.data.workspaces.DropCopyOf(ctx, copied))
}

// DropRecording implements changes.Source.
func (c changesSource) DropRecording(ctx context.Context, id string) error {
	return c.s.data.recordings.Discard(ctx, id)
}

// changesAudit writes the audit entries of package changes.
type changesAudit struct{ s *Service }

// Begin implements changes.Audit.
func (c changesAudit) Begin(ctx context.Context, caller sandbox.Principal, do, ref string) (context.Context, changes.Action) {
	return c.s.audit.Begin(ctx, caller.Actor(), do, ref)
}

// Append implements changes.Audit.
func (c changesAudit) Append(ctx context.Context, drafts ...audit.Draft) error {
	return c.s.audit.Append(ctx, drafts...)
}

// Note implements changes.Audit.
func (c changesAudit) Note(drafts ...audit.Draft) error { return c.s.audit.Note(drafts...) }

// Checkpoint implements changes.Audit.
func (c changesAudit) Checkpoint(ctx context.Context) (audit.Checkpoint, error) {
	return c.s.audit.Recorder().Checkpoint(ctx)
}
