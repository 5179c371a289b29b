package auditlog

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/telemetry"
)

// Create is the name of the action that creates a sandbox. Its entry is written together with that
// of the start, so that creating waits for the disk only once.
const Create = "create"

// Action is one request of a caller. It has one entry, whatever its outcome.
type Action struct {
	log     *Log
	actor   string
	name    string
	ref     string
	sandbox string
	started time.Time
	written bool // its entry has been written
	span    trace.Span
}

// actionKey is the context key of the action. Through the context, the code that finds the sandbox
// records it in the action, and other entries get their actor. No decision depends on it.
type actionKey struct{}

// Begin starts the action of a caller's request. ref is the caller's name for the sandbox.
func (l *Log) Begin(ctx context.Context, actor, name, ref string) (context.Context, *Action) {
	a := &Action{log: l, actor: actor, name: name, ref: ref, started: time.Now()}
	ctx, a.span = telemetry.Start(ctx, "action "+name)
	return context.WithValue(ctx, actionKey{}, a), a
}

// About records the sandbox of a context's action.
func About(ctx context.Context, id string) {
	if a := actionOf(ctx); a != nil && a.sandbox == "" {
		a.sandbox = id
	}
}

// Actor returns the actor of a context.
func Actor(ctx context.Context) string {
	if a := actionOf(ctx); a != nil {
		return a.actor
	}
	return Server
}

// actionOf returns the action of a context, or nil.
func actionOf(ctx context.Context) *Action {
	a, _ := ctx.Value(actionKey{}).(*Action)
	return a
}

// Commit writes the entry of the context's action, if it has none yet. The caller can then undo the
// action if the audit log refuses the entry.
func Commit(ctx context.Context) error {
	if a := actionOf(ctx); a != nil {
		return a.commit(ctx, nil)
	}
	return nil
}

// AppendStart writes the entries of a sandbox's start, together with that of the action that
// creates it. A fork is one action for many sandboxes and gets an entry of its own.
func (l *Log) AppendStart(ctx context.Context, id string, drafts ...audit.Draft) error {
	a := actionOf(ctx)
	if a == nil || a.name != Create {
		return l.Append(ctx, drafts...)
	}
	a.sandbox = id
	if err := l.Append(ctx, append(drafts, a.draft(nil))...); err != nil {
		return err
	}
	a.written = true
	return nil
}

// Commit writes the outcome of an action. It returns the action's error, or that of the audit log;
// in the latter case the caller undoes the action.
func (a *Action) Commit(ctx context.Context, err error) error {
	err = a.commit(ctx, err)
	a.end(err)
	return err
}

// end ends the action's span and counts the action.
func (a *Action) end(err error) {
	if a.sandbox != "" {
		a.span.SetAttributes(telemetry.Sandbox.String(a.sandbox))
	}
	telemetry.End(a.span, err)
	outcome := "ok"
	if err != nil {
		outcome = string(fault.KindOf(err))
	}
	a.log.times.Observe(time.Since(a.started), a.name, outcome)
}

func (a *Action) commit(ctx context.Context, err error) error {
	if err != nil {
		a.failed(err)
		return err
	}
	if a.written {
		return nil
	}
	ctx, cancel := finishContext(ctx)
	defer cancel()
	if err := a.log.Append(ctx, a.draft(nil)); err != nil {
		return err
	}
	a.written = true
	return nil
}

// Finish is Commit for an action that is not undone if the audit log refuses the entry.
func (a *Action) Finish(ctx context.Context, err error) error {
	defer a.end(err)
	if err != nil {
		a.failed(err)
		return err
	}
	if !a.written {
		a.log.AppendAnyway(ctx, a.draft(nil))
	}
	return nil
}

// failed writes an entry for a failed action. Entries about failures that any client can cause are
// limited.
func (a *Action) failed(err error) {
	if anyClientCanCause(err) {
		a.log.noteRefused(a.draft(err))
		return
	}
	if noteErr := a.log.Note(a.draft(err)); noteErr != nil {
		a.log.log.Warn("failed request not in the audit log", "sandbox", a.sandbox, "err", noteErr)
	}
}

// maxRef limits how much of the caller's text an entry holds.
const maxRef = 100

func (a *Action) draft(err error) audit.Draft {
	data := payload.Action{Do: a.name, Outcome: "ok", TookMS: time.Since(a.started).Milliseconds()}
	if err != nil {
		data.Outcome = cmp.Or(fault.CodeOf(err), string(fault.KindOf(err)))
	}
	if a.ref != a.sandbox {
		data.Ref = a.ref
		if len(data.Ref) > maxRef {
			data.Ref = data.Ref[:maxRef] + "…"
		}
	}
	return audit.Draft{Kind: audit.Action, Sandbox: a.sandbox, Actor: a.actor, Data: data}
}
