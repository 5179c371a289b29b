package server

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/state/key"
)

// AuditOptions limit the audit log and name further destinations of its tree heads. A zero field
// means its default.
type AuditOptions struct {
	KeepAge   time.Duration
	KeepBytes int64
	// Checkpoints are destinations of signed tree heads in the format of audit.ParseSink, separated
	// by semicolons; "" means none.
	Checkpoints string
	// Recordings is the maximum size of all session recordings in bytes.
	Recordings int64
}

// openRecord opens the audit log of the state directory.
func (d *Server) openRecord() error {
	o := d.options
	var sinks []audit.Sink
	for text := range strings.SplitSeq(o.Audit.Checkpoints, ";") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		sink, err := audit.ParseSink(text)
		if err != nil {
			return err
		}
		sinks = append(sinks, sink)
	}
	var err error
	d.Audit, err = audit.Open(audit.Options{
		Dir: filepath.Join(o.StateDir, "record"), Log: o.Log, Sinks: sinks,
		KeepAge: o.Audit.KeepAge, KeepBytes: o.Audit.KeepBytes,
	})
	return err
}

// serverEntry writes an entry about the start or the end of the server. An error is only logged,
// because people must be able to remove sandboxes on a full disk.
func (d *Server) serverEntry(ctx context.Context, kind audit.Kind) {
	if d.lock == nil || d.Audit == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := d.Audit.Append(ctx, audit.Draft{Kind: kind, Actor: "server", Data: payload.Server{
		Version: d.options.Version, Engine: d.Engines.Default().Info().Name, PID: os.Getpid(),
	}})
	if err != nil {
		d.options.Log.Error("server not in the audit log", "kind", string(kind), "err", err)
	}
}

// actor returns the caller of ctx for an audit entry. It is the holder of a key, the caller that a
// Frontend has authenticated, a user of this machine, or the server itself.
func actor(ctx context.Context, keyID string) string {
	if keyID != "" {
		return "key:" + keyID
	}
	if requester, ok := callerOf(ctx); ok {
		return requester.Actor()
	}
	return "server"
}

// keyEntry writes an entry about a key before it is created or revoked.
func (d *Server) keyEntry(ctx context.Context, kind audit.Kind, k key.Key) error {
	return d.Audit.Append(ctx, audit.Draft{Kind: kind, Actor: actor(ctx, ""), Data: payload.Key{ID: k.ID, Name: k.Name, Opens: string(k.Opens)}})
}

// approvalEntry writes an entry about an approval request and its decisions.
func (d *Server) approvalEntry(ctx context.Context, step approval.Step, a approval.Approval, v *approval.Vote) error {
	f := payload.Approval{
		ID: a.ID, Kind: a.Kind, Rule: a.Rule, Policy: a.Policy, Digest: a.Digest, State: string(a.State), Quorum: a.Quorum,
		Reason: a.Reason, Amendment: a.Amendment,
	}
	requester, kind := "box", audit.ApprovalAsked
	switch step {
	case approval.StepAsked:
		f.Facts = d.redactedFacts(ctx, a)
	case approval.StepVoted:
		kind = audit.ApprovalVoted
		f.Granted, f.Reason, f.Amendment, f.State = &v.Granted, v.Reason, v.Amendment, ""
	case approval.StepDecided:
		kind = audit.ApprovalDecided
	case approval.StepSpent:
		kind = audit.ApprovalSpent
	}
	if v != nil {
		requester = actor(ctx, v.Who)
		if v.Who == approval.LocalName || strings.HasPrefix(v.Who, approval.ConsolePrefix) {
			requester = actor(ctx, "")
		}
	}
	return d.Audit.Append(ctx, audit.Draft{Kind: kind, Sandbox: a.Sandbox, Actor: requester, Data: f})
}

// redactedFacts returns the facts of an approval request with secrets redacted, because a program
// in the sandbox chooses many of them.
func (d *Server) redactedFacts(ctx context.Context, a approval.Approval) map[string]string {
	redactValue, err := d.Service.EntryRedactor(ctx, a.Sandbox)
	if err != nil {
		return map[string]string{"left_out": "the values to redact were not known"}
	}
	facts := maps.Clone(a.Facts)
	for name, value := range facts {
		facts[name] = redactValue(value)
	}
	return facts
}

// closeRecord closes the audit log. It is called last.
func (d *Server) closeRecord() error {
	if d.Audit == nil {
		return nil
	}
	err := d.Audit.Close()
	d.Audit = nil
	return err
}

// failureEntry writes an entry about the failure of an action that already has an entry.
func (d *Server) failureEntry(requester, do string, err error) {
	if writeErr := d.Audit.Note(audit.Draft{Kind: audit.Action, Actor: requester, Data: payload.Action{Do: do, Outcome: outcome(err)}}); writeErr != nil {
		d.options.Log.Error("failed request not in the audit log", "err", errors.Join(writeErr, err))
	}
}

// outcome returns the outcome of a failed action for an audit entry.
func outcome(err error) string {
	if code := fault.CodeOf(err); code != "" {
		return code
	}
	return string(fault.KindOf(err))
}
