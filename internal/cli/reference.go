package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/denial"
	"github.com/crannog/crannog/internal/frontend/entrydata"
	"github.com/crannog/crannog/internal/ids"
)

// lastAlias refers to the sandbox that started last, whether it runs or has ended.
const lastAlias = "@last"

const referenceHelp = `Every command that takes a SANDBOX takes it in the same forms:

  NAME      the name given with --name: of a running sandbox, or else of one that has
            ended and is listed by crannog ls --all
  ID        the whole ID, also of an ended sandbox that is no longer listed
  ID...     a unique prefix of the ID of a listed sandbox (not for keys)
  @last     the sandbox that started last, whether it runs or has ended

After the end of a sandbox, logs, net log, inspect and audit still show it, and diff,
apply, export and discard work with its retained changes. All other commands fail
with code=not_running, exit code 5. A sandbox that never existed, or that belongs to
another key, is code=sandbox_not_found, exit code 3.
`

// subject is the sandbox to which a reference resolves.
type subject struct {
	client *crannog.Client
	id     string
	name   string           // name for messages
	sb     *crannog.Sandbox // nil if it has ended and only the audit log has it
}

// subject resolves a reference, also to a sandbox that has ended. All commands use it.
func (c *connection) subject(ctx context.Context, ref string) (subject, error) {
	if ref == lastAlias {
		id, err := c.newest(ctx)
		if err != nil {
			return subject{}, err
		}
		ref = id
	}
	sb, err := c.Get(ctx, ref)
	if err == nil {
		return subject{c.Client, sb.ID(), label(sb.Info()), sb}, nil
	}
	if errors.Is(err, crannog.ErrNotFound) && ids.ValidSandbox(ref) {
		if _, found := c.entry(ctx, ref, audit.SandboxStarted); found {
			return subject{client: c.Client, id: ref, name: ref}, nil
		}
	}
	return subject{}, fail(fmt.Sprintf("find sandbox %q", inert(ref)), err).hint(findHint(err))
}

// find resolves a reference to a sandbox that is still listed.
func (c *connection) find(ctx context.Context, ref string) (*crannog.Sandbox, error) {
	of, err := c.subject(ctx, ref)
	if err != nil {
		return nil, err
	}
	if of.sb == nil {
		return nil, of.endedError()
	}
	return of.sb, nil
}

// endedError returns the error for a command that needs a sandbox that has not ended.
func (of subject) endedError() error {
	return fail("use the sandbox", fault.Newf(fault.Conflict, "not_running", "sandbox %s has ended", of.name)).
		hint("crannog ls lists running sandboxes; crannog audit show --sandbox " + of.name + " shows its audit entries")
}

// newest returns the ID of the sandbox that started last.
func (c *connection) newest(ctx context.Context) (string, error) {
	var id string
	// Several sandboxes are read, because temporary copies for reading a saved state are skipped.
	for e, err := range c.Record(ctx, crannog.RecordOptions{Kinds: []string{string(audit.SandboxStarted)}, Newest: 100}) {
		if crannog.Code(err) == "route_not_found" {
			break // a server without an audit log
		}
		if err != nil {
			return "", fail("find the newest sandbox", err)
		}
		if d, ok := entrydata.Of(audit.SandboxStarted, e.Data).(payload.Started); ok && d.From != payload.FromReading {
			id = e.Sandbox
		}
	}
	if id != "" {
		return id, nil
	}
	rows, err := c.List(ctx, crannog.ListOptions{States: []string{"all"}})
	if err != nil {
		return "", fail("find the newest sandbox", err)
	}
	if len(rows) == 0 {
		return "", fail("find the newest sandbox", fault.New(fault.NotFound, "sandbox_not_found", "no sandbox has started yet")).
			hint("crannog run -- COMMAND starts one")
	}
	return rows[0].ID, nil
}

// entry returns the newest entry of a kind about a sandbox. An unreadable entry counts as absent:
// the caller then reports that the sandbox is not found.
func (c *connection) entry(ctx context.Context, id string, kind audit.Kind) (found api.Entry, ok bool) {
	for e, err := range c.Record(ctx, crannog.RecordOptions{Sandbox: id, Kinds: []string{string(kind)}, Newest: 1}) {
		if err != nil {
			return api.Entry{}, false
		}
		found, ok = e, true
	}
	return found, ok
}

// info returns the description of the sandbox, if necessary from the audit log.
func (c *connection) info(ctx context.Context, of subject) (api.Sandbox, error) {
	if of.sb != nil {
		return of.sb.Info(), nil
	}
	e, ok := c.entry(ctx, of.id, audit.SandboxStarted)
	f, known := entrydata.Of(audit.SandboxStarted, e.Data).(payload.Started)
	if !ok || !known {
		return api.Sandbox{}, of.endedError()
	}
	info := api.Sandbox{
		ID: of.id, Name: f.Name, Template: f.Template, TemplateID: f.TemplateID, State: "stopped", Owner: f.Owner,
		Ephemeral: f.Ephemeral, StartedAt: e.Time, Origin: f.Origin, Parent: f.Parent, Workspace: f.Workspace,
		Engine: f.Engine, Boundary: f.Boundary,
		Network: api.Network{Level: f.Level, Net: f.Net, Policy: f.Policy},
	}
	if e, ok := c.entry(ctx, of.id, audit.SandboxEnded); ok {
		if d, ok := entrydata.Of(audit.SandboxEnded, e.Data).(payload.Ended); ok {
			info.Reason, info.StoppedAt = d.Reason, &e.Time
		}
	}
	return info, nil
}

// flows calls yield for each flow of the sandbox. After its end, they are read from the audit log.
func (of subject) flows(ctx context.Context, o crannog.FlowOptions, yield func(api.FlowRecord) error) error {
	if of.sb != nil {
		return of.sb.Flows(ctx, o, yield)
	}
	for e, err := range of.client.Record(ctx, crannog.RecordOptions{Sandbox: of.id, Kinds: []string{string(audit.Flow)}}) {
		if err != nil {
			return err
		}
		r, ok := entrydata.Of(audit.Flow, e.Data).(egress.Record)
		if !ok {
			return fmt.Errorf("entry %d of the audit log is not a network flow", e.Seq)
		}
		if o.Denied && r.Effect != egress.Deny {
			continue
		}
		if err := yield(denial.Flow(r)); err != nil {
			return err
		}
	}
	return nil
}

// hasEnded reports whether the sandbox has ended, so that no new data follows.
func (of subject) hasEnded(ctx context.Context) bool {
	if of.sb == nil {
		return true
	}
	info, err := of.sb.Refresh(ctx)
	return err != nil || info.State == "stopped"
}

// logs returns the sandbox's log, which is removed together with the sandbox.
func (of subject) logs(ctx context.Context) ([]api.LogEntry, error) {
	if of.sb == nil {
		return nil, nil
	}
	return of.sb.Logs(ctx)
}

// recordings returns the recordings of the sandbox's commands, which may outlive it.
func (of subject) recordings(ctx context.Context) ([]api.Recording, error) {
	list, err := of.client.RecordingsOf(ctx, of.id)
	switch {
	case err == nil:
		return list, nil
	case of.sb == nil && errors.Is(err, crannog.ErrNotFound):
		return nil, fail("read the commands of "+of.id, fault.Newf(fault.NotFound, "recording_not_found", "sandbox %s has ended, and no recordings of it are retained", of.name)).
			hint("it ran with --no-changes, or the recordings were discarded or expired; crannog audit show --sandbox " + of.name + " shows its audit entries")
	}
	return nil, fail("read the commands of "+of.id, err)
}
