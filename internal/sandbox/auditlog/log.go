// Package auditlog owns the audit entries of a service, about its actions and the requests of its
// callers. Some entries must be durable before their action, and others must not stop their action.
// The number of entries per minute about refused requests is limited.
package auditlog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Server is the actor of events without a caller.
const Server = "server"

// finishTimeout limits the time for an entry that is written even if the caller goes away.
const finishTimeout = 30 * time.Second

// Log writes the entries of one service. It is safe for concurrent use.
type Log struct {
	recorder audit.Recorder
	log      *slog.Logger
	times    *metrics.Vector // of actions; may be nil

	mu sync.Mutex
	// lost counts the refused entries of actions that could not be stopped.
	lost    uint64
	refused refused
}

// New returns a Log that writes to a recorder.
func New(to audit.Recorder, log *slog.Logger) *Log { return &Log{recorder: to, log: log} }

// Time makes the Log measure actions, with the labels action and outcome. It is called before the
// first action.
func (l *Log) Time(times *metrics.Vector) { l.times = times }

// Recorder is the audit log itself.
func (l *Log) Recorder() audit.Recorder { return l.recorder }

// Note writes an entry before an action, without waiting for the disk.
func (l *Log) Note(drafts ...audit.Draft) error { return l.recorder.Note(drafts...) }

// Append writes an entry durably. It is called before an action that must not happen without its
// entry.
func (l *Log) Append(ctx context.Context, drafts ...audit.Draft) error {
	if err := l.recorder.Append(ctx, drafts...); err != nil {
		return err
	}
	l.reportLost(ctx)
	return nil
}

// AppendAnyway writes an entry about an action that happens even if the audit log refuses the
// entry: a full disk must not prevent the end of a dangerous sandbox. Refused entries are counted,
// and the count is written when the log works again.
func (l *Log) AppendAnyway(ctx context.Context, drafts ...audit.Draft) {
	ctx, cancel := finishContext(ctx)
	defer cancel()
	err := l.Append(ctx, drafts...)
	if err == nil {
		return
	}
	l.log.Error("not in the audit log", "kind", string(drafts[0].Kind), "sandbox", drafts[0].Sandbox, "err", err)
	l.mu.Lock()
	l.lost += uint64(len(drafts))
	l.mu.Unlock()
}

// reportLost writes the number of missing entries once the audit log works again.
func (l *Log) reportLost(ctx context.Context) {
	l.mu.Lock()
	lost := l.lost
	l.lost = 0
	l.mu.Unlock()
	if lost == 0 {
		return
	}
	err := l.recorder.Append(ctx, audit.Draft{Kind: audit.Gap, Actor: Server, Data: ingest.Gap{
		Lost: lost, Of: "record", Reason: "record_unavailable",
	}})
	if err != nil {
		l.mu.Lock()
		l.lost += lost
		l.mu.Unlock()
	}
}

// Tick writes entries that are due.
func (l *Log) Tick(ctx context.Context) {
	l.mu.Lock()
	omitted := l.refused.nextMinute(time.Now())
	l.mu.Unlock()
	l.reportOmitted(omitted)
	l.reportLost(ctx)
}

// finishContext returns a context for an entry that is written even if the caller goes away.
func finishContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
}

// anyClientCanCause reports whether any client can cause a failure any number of times.
func anyClientCanCause(err error) bool {
	switch fault.KindOf(err) {
	case fault.Unauthenticated, fault.Denied, fault.NotFound, fault.Invalid:
		return true
	default:
		return false
	}
}

// Entry returns an entry of the kind about a sandbox, by the actor of the context.
func Entry(ctx context.Context, kind audit.Kind, sandbox string, data any) audit.Draft {
	return audit.Draft{Kind: kind, Sandbox: sandbox, Actor: Actor(ctx), Data: data}
}

// Refused writes an entry for a request that was refused before it reached the service. The number
// of such entries per minute is limited.
func (l *Log) Refused(actor, what, outcome string) {
	const limit = 200
	if len(what) > limit {
		what = what[:limit] + "…"
	}
	l.noteRefused(audit.Draft{Kind: audit.Action, Actor: actor, Data: payload.Action{Do: what, Outcome: outcome}})
}
