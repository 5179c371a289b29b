package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// recordStart makes the audit entry durable before the row becomes Running. If the audit log
// refuses the entry, the start can still be undone, and a crash in between leaves no running
// sandbox that the log does not have. The entry of the caller's request is written with it, so that
// a creation waits for the disk once.
func (s *Service) recordStart(ctx context.Context, r sandbox.Row, from string) error {
	watched := s.engines.observer(r.Engine) != nil
	f := payload.Started{
		Name: r.Name, Owner: r.Owner, Template: r.Template, TemplateID: r.TemplateID, From: from,
		Origin: r.Origin, Parent: r.Parent, Engine: r.Engine, Boundary: string(r.Boundary), Containers: r.Base.Containers, Workspace: r.Workspace,
		Level: r.PolicyLevel, Policy: r.PolicyDigest, Net: string(r.Access.Net), Attachment: string(r.Base.Attachment), NotCarried: r.Base.Attachment.NotCarried(), Checked: r.Checked, Ephemeral: r.Ephemeral,
		EndAt: formatTime(r.EndAt), Watched: watched && s.intake.Ingests(), Unseen: r.Base.Unseen,
		Limits: payload.Limits{
			MemoryBytes: r.Limits.MemoryBytes, MilliCPU: r.Limits.MilliCPU, PIDs: r.Limits.PIDs,
			DiskBytes: r.Limits.DiskBytes, DiskInodes: r.Limits.DiskInodes, ShmBytes: r.Limits.ShmBytes,
		},
	}
	for _, l := range r.Enforced {
		f.Enforced = append(f.Enforced, string(l))
	}
	return s.audit.AppendStart(ctx, r.ID, auditlog.Entry(ctx, audit.SandboxStarted, r.ID, f))
}

// formatTime formats a time, or returns "" for none.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// lifeSource is the prefix of the source of the entry about a sandbox's end. The source ensures
// that there is one entry, even if several processes finish the same end.
const lifeSource = "life/"

// recordEnd writes the end of a sandbox, once.
func (s *Service) recordEnd(ctx context.Context, r sandbox.Row, at time.Time) error {
	source := lifeSource + r.ID
	write := func(again bool) error {
		if again {
			done, err := s.audit.Recorder().Position(ctx, source)
			if err == nil && done > 0 {
				return nil
			}
		}
		var drafts []audit.Draft
		if r.Reason == string(engine.ReasonOOM) {
			drafts = append(drafts, auditlog.Entry(ctx, audit.LimitHit, r.ID, payload.Limit{Limit: string(engine.LimitMemory), Most: r.Limits.MemoryBytes}))
		}
		d := auditlog.Entry(ctx, audit.SandboxEnded, r.ID, payload.Ended{Reason: r.Reason, LastMS: at.Sub(r.StartedAt).Milliseconds()})
		d.Source, d.At = source, 1
		s.audit.AppendAnyway(ctx, append(drafts, d)...)
		return nil
	}
	return s.intake.Exclusive(ctx, r.ID, write)
}
