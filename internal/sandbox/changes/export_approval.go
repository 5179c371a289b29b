package changes

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

// exportWait is how long an export waits for an approval. It is long enough to use an existing
// approval. A caller whose request is still pending retries later.
const exportWait = time.Second

// Limits of the lists in an approval request. The digest covers everything.
const (
	maxListedPaths = 100
	maxListedBytes = 1800
)

// approveExport requests approval of exactly these changes. A grant is bound to the digest and the
// destination, and is used up here.
func (s *Service) approveExport(ctx context.Context, o *comparison, c choice, to string) (string, error) {
	if s.approvals == nil {
		return "", fault.New(fault.Denied, "export_unasked", "the policy requires an approval for this export, but this server has no approvers")
	}
	doc := o.policy.Document().Approvals
	kind, verb := egress.AskExport, "bring"
	if c.decision.Rule == policy.RuleDeletions {
		kind = egress.AskDelete
	}
	if !strings.HasPrefix(to, "/") {
		verb = "write"
	}
	summary := fmt.Sprintf("%s %d changed files out to %s", verb, len(c.chosen)-c.removals, to)
	if c.removals > 0 {
		summary += fmt.Sprintf(", and remove %d", c.removals)
	}
	waitCtx, cancel := context.WithTimeout(ctx, exportWait)
	defer cancel()
	outcome, err := s.approvals.Ask(waitCtx, egress.ApprovalRequest{
		Sandbox: o.record.ID, Kind: kind, Summary: summary,
		Facts: map[string]string{
			"digest": c.digest, "to": to, "files": strconv.Itoa(len(c.chosen) - c.removals), "deletions": strconv.Itoa(c.removals),
			"paths": s.nameRedactor(ctx, o)(namesOf(c.chosen)),
		},
		Rule: c.decision.Rule, Policy: o.policy.Digest(), Quorum: doc.Quorum, Expiry: int64(time.Duration(doc.Timeout) / time.Second),
	})
	if err != nil {
		return "", err
	}
	if outcome.Granted {
		return outcome.Approval, nil
	}
	e := fault.Newf(fault.Denied, "export_"+outcome.State, "these changes need an approval, which is %s", outcome.State)
	switch {
	case outcome.State == "denied" && outcome.Reason != "":
		e = e.WithHint("the reason was: " + outcome.Reason)
	case outcome.Approval != "":
		e = e.WithHint(approval.HowToGrant(outcome.Approval, o.record.Owner, doc.Quorum) + "; then repeat the command")
	}
	return "", e
}

// namesOf lists the names of changes for a person, as many as fit: removals first, then flagged
// files.
func namesOf(all []changeset.Change) string {
	var b strings.Builder
	shown := 0
	for _, pass := range []func(changeset.Change) bool{
		func(c changeset.Change) bool { return c.New == nil },
		func(c changeset.Change) bool { return c.New != nil && len(c.Flags) > 0 },
		func(c changeset.Change) bool { return c.New != nil && len(c.Flags) == 0 },
	} {
		for _, c := range all {
			if !pass(c) {
				continue
			}
			var entry strings.Builder
			entry.WriteString(string(c.Op) + " " + plainName(c.Path))
			for _, f := range c.Flags {
				entry.WriteString(" (" + string(f) + ")")
			}
			if shown == maxListedPaths || b.Len()+len(entry.String())+2 > maxListedBytes {
				return b.String() + fmt.Sprintf("; and %d more", len(all)-shown)
			}
			if shown++; b.Len() > 0 {
				b.WriteString("; ")
			}
			b.WriteString(entry.String())
		}
	}
	return b.String()
}

// plainName quotes a name that could be misread as several names.
func plainName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r == ';' || r == '"' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return strconv.QuoteToASCII(name)
	}
	return name
}

// recordExport writes an audit entry before the export, so that no data leaves without one.
func (s *Service) recordExport(ctx context.Context, caller sandbox.Principal, o *comparison, c choice, to, approval string) error {
	return s.audit.Append(ctx, s.exportDraft(ctx, caller, o, c, to, approval))
}

// maxFlaggedBytes limits the total length of paths in an entry. A sandbox chooses them, and with
// too many of the longest ones the entry could not be written.
const maxFlaggedBytes = 32 << 10

// toDiff is the destination of an export whose text was shown as a diff.
const toDiff = "diff"

// exportDraft returns the entry of an export.
func (s *Service) exportDraft(ctx context.Context, caller sandbox.Principal, o *comparison, c choice, to, approval string) audit.Draft {
	e := payload.Export{
		To: to, Digest: c.digest, Files: len(c.chosen) - c.removals, Deletions: c.removals,
		Rule: c.decision.Rule, Policy: o.policy.Digest(), Approval: approval, Masked: changeset.CountMasked(c.chosen),
	}
	bytesLeft := maxFlaggedBytes
	var redactName func(string) string
	for _, ch := range c.chosen {
		if len(ch.Flags) > 0 && len(e.Flagged) < maxListedPaths && len(ch.Path) <= bytesLeft {
			bytesLeft -= len(ch.Path)
			if redactName == nil {
				redactName = s.nameRedactor(ctx, o)
			}
			e.Flagged = append(e.Flagged, redactName(ch.Path))
		}
	}
	return audit.Draft{Kind: audit.Exported, Sandbox: o.record.ID, Actor: caller.Actor(), Data: e}
}

// nameRedactor returns the redactor for file names in the audit log and in approval requests. A
// sandbox chooses the names, so secrets are removed even if the policy shows them inside.
func (s *Service) nameRedactor(ctx context.Context, o *comparison) func(names string) string {
	redactor := o.redactor
	if o.isRetained {
		var err error
		if redactor, err = s.source.RetainedRedactor(ctx, o.record); err != nil {
			s.log.Warn("file names omitted: the sandbox's secrets are not known", "sandbox", o.record.ID, "err", err)
			return func(string) string { return "(omitted: its secrets cannot be redacted)" }
		}
	}
	return redactor.Record().String
}
